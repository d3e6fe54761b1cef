"""Users, permissions, limits and SASL mechanisms."""
