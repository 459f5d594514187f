"""Holds every example of an OpenAPI document against its schema; prints how many there are."""

import json
import sys

import jsonschema_rs

with open(sys.argv[1]) as file:
    document = json.load(file)


def closed(schema):
    """The schema without room for members that it does not name."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


SCHEMAS = closed(document["components"]["schemas"])


def validator(schema):
    whole = {**closed(schema), "components": {"schemas": SCHEMAS}}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def bodies():
    for section in ("paths", "webhooks"):
        for path, item in document[section].items():
            for method, operation in item.items():
                if "requestBody" in operation:
                    yield f"{method} {path} takes", operation["requestBody"]
                for status, response in operation["responses"].items():
                    yield f"{method} {path} answers {status}", response


def examples(content):
    if "example" in content:
        yield content["example"]
    for example in content.get("examples", {}).values():
        yield document["components"]["examples"][example["$ref"].rsplit("/", 1)[1]]["value"]


checked, wrong = 0, []
for what, body in bodies():
    content = body.get("content", {}).get("application/json")
    if content is None:
        continue
    judge = validator(content["schema"])
    for example in examples(content):
        checked += 1
        wrong += [f"{what}: {error.instance_path}: {error.message}" for error in judge.iter_errors(example)]

# It would find a wrong one.
answer = document["paths"]["/api/v1/conversation/connect"]["post"]["responses"]["200"]["content"]["application/json"]
judge = validator(answer["schema"])
good = answer["example"]
assert judge.is_valid(good)
for key, value in {"session_id": "1", "protocol": "morse", "expires_at": "2026-11-21T09:06:00Z", "more": 1}.items():
    assert not judge.is_valid({**good, key: value}), key

print("\n".join(wrong))
print(checked, "examples")
sys.exit(1 if wrong else 0)
