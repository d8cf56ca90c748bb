"""What an engine needs to know, on arrays: pairs, scores, prior, gamma."""
