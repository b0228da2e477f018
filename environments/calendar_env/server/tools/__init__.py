"""The tools: what an agent calls, with the schemas that models are shown."""
