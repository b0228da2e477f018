"""The debug page: a person plays one episode of the environment in a browser, and sees all that the server knows of it.

Imported only where the page is wanted. `mounting` puts it into an application; `visitor` is one person's session;
`page_socket` is what the page talks to; ``static/`` is the page itself, as the browser gets it.
"""
