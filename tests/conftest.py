from hypothesis import settings

# Kernels compile at their first call, which no deadline can foresee.
settings.register_profile("pymc_pacauc", deadline=None)
settings.load_profile("pymc_pacauc")
