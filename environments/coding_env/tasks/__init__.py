"""The tasks that come with the environment, one a file. ``coding_env.server.tasks`` reads them."""
