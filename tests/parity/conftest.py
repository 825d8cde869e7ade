"""The checks of one case run one after the other, so that its two models are built once; after all other tests."""


def pytest_collection_modifyitems(items):
    cases = [item for item in items if item.path.name == "test_parity.py"]
    cases.sort(key=lambda item: tuple(item.callspec.params[key] for key in ("name", "task", "seed")))
    items[:] = [item for item in items if item.path.name != "test_parity.py"] + cases
