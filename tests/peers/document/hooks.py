"""What schemathesis has to know of the installation: which voice there is, and whom it must not lock out."""

import os
import uuid

import schemathesis

VOICE = os.environ["SIDETONE_VOICE"]
# The key that makes the requests and its account: revoking, rotating or blocking them would end the run.
OWN = {os.environ["SIDETONE_KEY_ID"], os.environ["SIDETONE_ACCOUNT_ID"]}
CHANGES = {"DELETE", "PATCH", "POST"}


@schemathesis.hook
def before_call(context, case, kwargs):
    for name, value in (case.path_parameters or {}).items():
        if value in OWN and case.method in CHANGES:
            case.path_parameters[name] = str(uuid.uuid4())
    mode = case.meta and case.meta.generation.mode
    if mode and mode.is_positive and isinstance(case.body, dict) and isinstance(case.body.get("voice_id"), str):
        # A voice that exists, so that what is right in form is right altogether.
        case.body["voice_id"] = VOICE


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Answers hold no member that the document does not name; clients must pass over such, a test need not."""
    for name, schema in raw_schema["components"]["schemas"].items():
        if name != "Connect":  # a request in which unknown members are ignored
            close(schema)


def close(schema):
    if isinstance(schema, dict):
        for part in schema.values():
            close(part)
        if isinstance(schema.get("properties"), dict):
            schema.setdefault("additionalProperties", False)
    elif isinstance(schema, list):
        for part in schema:
            close(part)
