"""Placeholder."""


class PropertyConformance:
    pass
