"""Configuration: rabbitmq.conf, environment variables and flags, made into one typed tree."""

from warren.config.errors import ConfigError
from warren.config.load import load_settings
from warren.config.settings import Endpoint, Settings

__all__ = ["ConfigError", "Endpoint", "Settings", "load_settings"]
