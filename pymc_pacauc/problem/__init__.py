"""A problem to fit, in arrays: scores, pairs, prior and gamma; features; provenance; scoring of new rows."""
