"""A path of any target given by functions."""

from pymc_pacauc.smc.paths import Energies, Path


class ModelPath(Path):
    """From the prior, ``prior_logp`` and ``prior_draw(size, rng)``, to prior * exp(-gamma * risk(theta))."""

    def __init__(self, prior_logp, risk, prior_draw, gamma, dimension):
        super().__init__(dimension, gamma)
        self.prior_logp, self.risk, self.prior_draw = prior_logp, risk, prior_draw

    def draw(self, size, rng):
        return self.prior_draw(size, rng)

    def evaluate(self, x):
        risk = self.risk(x)
        return Energies(self.prior_logp(x), -risk, risk)
