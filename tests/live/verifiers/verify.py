"""Verifies requests with the official package `standardwebhooks`.

Reads one JSON array from stdin: {key, headers, body} each. Prints one JSON array of true and false. Any other end is a failure.
"""

import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def is_signed(request):
    try:
        Webhook(request["key"]).verify(request["body"], request["headers"])
        return True
    except WebhookVerificationError:
        return False


print(json.dumps([is_signed(request) for request in json.load(sys.stdin)]))
