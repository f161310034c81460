"""Access tokens of an OpenID provider; loaded only where one is configured, as it takes long."""
