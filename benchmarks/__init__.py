"""How fast we are beside the plainest alternative, as ratios measured in one run."""
