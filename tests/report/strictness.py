"""Published schemas allow keys to be added; tests do not."""

import copy


def strict(schema):
    """The schema, refusing every key that it does not name."""
    schema = copy.deepcopy(schema)

    def close(part):
        if isinstance(part, dict):
            if "properties" in part:
                part["additionalProperties"] = False
            for value in part.values():
                close(value)
        elif isinstance(part, list):
            for value in part:
                close(value)

    close(schema)
    return schema
