"""Parts of the OpenAPI document that FastAPI cannot derive from the code of the routes."""

from typing import Any

from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import DIGEST, ClientReport, Message, Receipt, Ticket

Part = dict[str, Any]


def _json_text(message: type[Message], description: str) -> Part:
    """The schema of a text that contains a message as JSON."""
    return {
        "description": description,
        "schema": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": message.model_json_schema(),
        },
    }


BYTES: Part = {wire.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}
"""The content of a body that is a safetensors file, but neither a model nor an update."""
MODEL: Part = {
    wire.MEDIA_TYPE: {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "A safetensors file with the tensors of the model, in float32, sorted "
            "by name and without gaps.",
        }
    }
}
"""The content of a body that is a model."""
UPDATE: Part = {
    wire.MEDIA_TYPE: {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "A safetensors file with the tensors of the model in the ticket: "
            "the same names and shapes in the same order, without gaps. The numbers are the "
            "trained model minus the received model; all are F32, F16 or BF16, and finite. The "
            "metadata has the key `report`, whose value is the client's report as JSON (see "
            "`x-safetensors-metadata`). The only other key allowed is `format`.",
            "x-safetensors-metadata": {
                "type": "object",
                "required": ["report"],
                "properties": {
                    "report": {
                        **_json_text(ClientReport, "")["schema"],
                        "examples": ['{"samples": 200, "metrics": {"test_samples": 20}}'],
                    },
                    "format": {"type": "string", "examples": ["pt"]},
                },
                "additionalProperties": False,
            },
        }
    }
}
"""The content of a request body that is an update."""
UPLOAD: Part = {
    "requestBody": {"required": True, "content": UPDATE},
    "parameters": [
        {
            "name": "Content-Encoding",
            "in": "header",
            "required": False,
            "description": "`zstd` if the body is compressed with Zstandard",
            "schema": {"type": "string", "enum": ["identity", "zstd"], "default": "identity"},
        },
        {
            "name": "Content-Length",
            "in": "header",
            "required": True,
            "description": "number of bytes of the body as it is sent",
            "schema": {"type": "integer", "minimum": 1, "examples": [41256]},
        },
    ],
}
"""OpenAPI parts for a route that receives an update: the body and two headers."""
MODEL_ETAG: Part = {
    "ETag": {
        "description": "the file's digest in quotes; the file never changes",
        "schema": {"type": "string", "pattern": f'^"{DIGEST[1:-1]}"$'},
    }
}
"""The header of a response whose body is a stored file, such as a model."""
TICKET_ETAG: Part = {
    "ETag": {
        "description": "the ticket's ETag, for `If-None-Match` in the next request",
        "schema": {"type": "string"},
    }
}
"""The header of a response that has a ticket, as body or as header."""
TICKET_HEADERS: Part = {
    **TICKET_ETAG,
    wire.TICKET_HEADER: _json_text(
        Ticket, "the ticket; present if the body is the model that the ticket names"
    ),
}
"""The headers of a response with a ticket."""
UPLOAD_HEADERS: Part = {
    **TICKET_HEADERS,
    wire.RECEIPT_HEADER: _json_text(
        Receipt, "the upload's receipt; present if the body is the next ticket or its model"
    ),
}
"""The headers of the response to an upload."""
TABLE: Part = {"type": "object", "additionalProperties": True}
EXPERIMENT: Part = {
    "application/json": {
        "schema": {
            "type": "object",
            "description": "The tables and keys of the experiment's TOML file. A client gets no "
            "`server`, `attackers`, `placement` and `clients`, but gets the last three properties.",
            "required": ["name", "rounds", "data", "model", "training", "personalizer"],
            "properties": {
                "name": {"type": "string"},
                "rounds": {"type": "integer", "minimum": 1},
                "policy": {"type": "string", "description": "when a round ends"},
                "data": {**TABLE, "description": "the data set, and how it is divided"},
                "model": {**TABLE, "description": "the network: `name` and its parameters"},
                "training": {**TABLE, "description": "`epochs`, `learning_rate` and so on"},
                "personalizer": {**TABLE, "description": "how clients personalize models"},
                "phases": {**TABLE, "description": "numbers of clients and time limits"},
                "server": {**TABLE, "description": "aggregation and detection; for operators"},
                "attackers": {"description": "simulated attackers; for operators"},
                "sample_cap": {
                    "type": ["integer", "null"],
                    "description": "largest sample count of a report; for clients",
                },
                "digest": {
                    "type": "string",
                    "pattern": DIGEST,
                    "description": "digest of the whole experiment; for clients",
                },
                "initial": {
                    "type": "string",
                    "pattern": DIGEST,
                    "description": "digest of the first model, if the experiment's seed does not "
                    "determine it; for clients",
                },
            },
            "additionalProperties": True,
        }
    }
}
"""The content of the response with an experiment."""
