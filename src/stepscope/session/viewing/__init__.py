"""Traces for a viewer: served to a page, or cut to what matters."""
