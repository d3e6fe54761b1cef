"""The nouns every layer shares: messages, addresses, errors, definitions, policies."""
