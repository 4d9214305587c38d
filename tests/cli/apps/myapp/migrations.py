"""From tiers to levels."""

from ontologia import upgrader


@upgrader("Customer", from_version=1)
def tiers_become_levels(row):
    tier = row.pop("tier")
    return {**row, "level": 2 if tier == "Gold" else 1}
