"""Evidence, path and certificate are the same however people handle the draws, or the refusal says what is missing."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_pacauc as pac
from pymc_pacauc.model.compat import inference_data
from pymc_pacauc.model.results import as_result, dataset_of
from pymc_pacauc.smc.tempering import TemperingWarning
from tests.oracles import exact_plane, plane_data

GAMMA = 30.0


@pytest.fixture(scope="module")
def exact():
    return exact_plane(*plane_data(), GAMMA)


def sampled(seed, **options):
    X, y = plane_data()
    with pm.Model(coords={"covariate": ["a", "b"]}):
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X @ theta, y, gamma=GAMMA)
        step = pac.TemperingSMC(particles=400, **options)
        return pm.sample(400, step=step, chains=2, cores=1, random_seed=seed, progressbar=False, quiet=True)


@pytest.fixture(scope="module")
def idata():
    return sampled(1, keep_particles=True)


def groups(idata):
    return {name: dataset_of(idata, name) for name in ("posterior", "sample_stats")}


def transformed(idata, change):
    return inference_data({name: change(group) for name, group in groups(idata).items()})


SELECTIONS = {
    "without the first": lambda d: d.isel(draw=slice(1, None)),
    "without the first ten": lambda d: d.isel(draw=slice(10, None)),
    "the last half": lambda d: d.isel(draw=slice(200, None)),
    "every third": lambda d: d.isel(draw=slice(None, None, 3)),
    "in reverse": lambda d: d.isel(draw=slice(None, None, -1)),
    "one draw": lambda d: d.isel(draw=[17]),
    "transposed": lambda d: d.transpose("draw", "chain", ...),
}


@pytest.mark.parametrize("change", SELECTIONS.values(), ids=SELECTIONS.keys())
def test_a_selection_of_draws_knows_its_evidence(idata, exact, change):
    whole, part = pac.log_evidence(idata), pac.log_evidence(transformed(idata, change))
    assert part == whole
    assert abs(whole.estimate - exact.log_evidence) < 4 * whole.standard_error
    assert pac.certificate(transformed(idata, change)) == pac.certificate(idata)


@pytest.mark.parametrize("change", SELECTIONS.values(), ids=SELECTIONS.keys())
def test_a_selection_of_draws_keeps_the_stages_it_carries(idata, change):
    whole, part = pac.tempering_path(idata), transformed(idata, change)
    carried = dataset_of(part, "sample_stats")["path_stage"].values
    complete = all(
        np.unique(carried[c] if carried.shape[0] == 2 else carried[:, c]).size == whole.sizes["stage"] for c in (0, 1)
    )
    if complete:
        xr.testing.assert_equal(pac.tempering_path(part), whole)
        return
    with pytest.warns(TemperingWarning, match=r"no record of [0-9]+ stage\(s\)"):
        found = pac.tempering_path(part)
    known = ~np.isnan(found["log_evidence"].values)
    np.testing.assert_array_equal(found["log_evidence"].values[known], whole["log_evidence"].values[known])


def test_one_chain_has_its_own_evidence(idata):
    path = pac.tempering_path(idata)
    for chain in (0, 1):
        part = transformed(idata, lambda d, chain=chain: d.isel(chain=[chain]))
        assert pac.log_evidence(part).estimate == path["log_evidence"].values[chain][-1]


def test_extracted_draws(idata):
    stats = az.extract(idata, group="sample_stats")
    assert pac.log_evidence(stats) == pac.log_evidence(idata)
    with pytest.raises(TypeError, match="pass the whole idata"):
        pac.certificate(az.extract(idata))
    with pytest.raises(TypeError, match="pass the whole idata"):
        pac.certificate(inference_data({"posterior": groups(idata)["posterior"]}))


@pytest.mark.parametrize("dim", ["chain", "draw"])
def test_runs_put_together_are_told_apart(idata, dim):
    other = sampled(2, keep_particles=True)
    datasets = {
        name: xr.concat([groups(idata)[name], groups(other)[name]], dim=dim, combine_attrs="override")
        for name in ("posterior", "sample_stats")
    }
    both = inference_data(datasets)
    one, two, joined = (pac.log_evidence(each) for each in (idata, other, both))
    assert joined.estimate == pytest.approx(np.logaddexp(one.estimate, two.estimate) - np.log(2.0))
    assert pac.tempering_path(both).sizes["chain"] == 4
    again = inference_data({n: xr.concat([groups(idata)[n]] * 2, dim=dim) for n in ("posterior", "sample_stats")})
    assert pac.log_evidence(again) == one  # copies are not evidence


def test_different_fits_are_not_pooled(idata):
    X, y = plane_data()
    with pm.Model(coords={"covariate": ["a", "b"]}):
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X @ theta, y, gamma=2 * GAMMA)
        step = pac.TemperingSMC(particles=200, keep_particles=True)
        other = pm.sample(400, step=step, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    stats = xr.concat([groups(idata)["sample_stats"], groups(other)["sample_stats"]], dim="chain")
    joined = inference_data({"posterior": groups(idata)["posterior"], "sample_stats": stats})
    for use in (pac.certificate, pac.tempering_path):
        with pytest.raises(ValueError, match=r"differ in their gamma \(30, 60\)"):
            use(joined)


def test_at_gamma_of_a_selection(idata, exact):
    part = transformed(idata, SELECTIONS["without the first ten"])
    lower = pac.at_gamma(part, 29.0, model=model_of(), random_seed=1)
    assert lower.sizes["draw"] == 390
    mixed = inference_data({"posterior": groups(idata)["posterior"], "sample_stats": groups(part)["sample_stats"]})
    with pytest.raises(ValueError, match="different draws"):
        pac.at_gamma(mixed, 29.0)
    with pytest.raises(ValueError, match="pass model="):
        pac.at_gamma(part, 29.0)


def model_of():
    X, y = plane_data()
    with pm.Model(coords={"covariate": ["a", "b"]}) as model:
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X @ theta, y, gamma=GAMMA)
    return model


def saved_and_read(idata, tmp_path, kind):
    if kind == "netcdf":
        pytest.importorskip("h5py")
        idata.to_netcdf(tmp_path / "draws.nc")
        return az.from_netcdf(tmp_path / "draws.nc")
    pytest.importorskip("zarr")
    for name, group in groups(idata).items():
        group.drop_vars("warning", errors="ignore").to_zarr(
            tmp_path / "draws.zarr", group=name, mode="a", consolidated=False
        )
    return inference_data(
        {name: xr.open_zarr(tmp_path / "draws.zarr", group=name, consolidated=False) for name in groups(idata)}
    )


@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")  # names of covariates are strings
@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_files(idata, tmp_path, kind):
    with model_of():
        approx_draws = pm.fit(method=pac.EP(), progressbar=False).sample(50, random_seed=1)
    for number, draws in enumerate((idata, approx_draws)):
        folder = tmp_path / str(number)
        folder.mkdir()
        read = saved_and_read(draws, folder, kind)
        for selection in (lambda d: d, SELECTIONS["without the first ten"]):
            again = transformed(read, selection)
            assert as_result(again).fitted_to == as_result(draws).fitted_to
            assert pac.certificate(again) == pac.certificate(draws)
            np.testing.assert_equal(vars(pac.log_evidence(again)), vars(pac.log_evidence(draws)))
