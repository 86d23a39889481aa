"""The schemas of docs/schemas, read by `jsonschema`: they are valid, and each keyword means what the tests in Rust say."""

import json
from pathlib import Path

import pytest

jsonschema = pytest.importorskip("jsonschema", reason="schemas are judged by jsonschema")
referencing = pytest.importorskip("referencing", reason="schemas are judged by jsonschema")

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = {path.name: json.loads(path.read_text()) for path in sorted((ROOT / "docs/schemas").glob("*.schema.json"))}
CASES = json.loads((ROOT / "tests/data/cli/schema_cases.json").read_text())
REGISTRY = referencing.Registry().with_resources(
    (name, referencing.Resource.from_contents(schema)) for name, schema in SCHEMAS.items()
)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case["schema"])[:60])
def test_a_keyword_decides_as_in_rust(case):
    contents = case["schema"] | {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    validator = jsonschema.Draft202012Validator(contents, registry=REGISTRY)
    for document in case["good"]:
        validator.validate(document)
    for document in case["bad"]:
        assert not validator.is_valid(document), document
