"""The server's side: the environment and the app that serves it."""
