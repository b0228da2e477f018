"""An environment's tools: Python functions, or those of an MCP server object, called and their failures told apart."""
