"""From a posterior to a decision: choosing gamma, certifying, predicting, ranking, figures."""
