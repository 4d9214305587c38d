"""Where bytes live: one interface over S3, GCS, a directory and memory, with conditional puts, leases and a
cache.

Nothing here knows about ontologies, frames or graphs. Nothing above here talks to storage in another way.
"""

from ontologia.objects.backend import Blob, Info
from ontologia.objects.cache import FileCache, damage_error
from ontologia.objects.clock import SYSTEM_CLOCK, Clock, SystemClock, pauses, utc_now
from ontologia.objects.conditional import Committed, Rejected, conditional_put, new_writer_id
from ontologia.objects.failures import ConditionFailed, ObjectNotFound, is_transient, may_be_applied
from ontologia.objects.lease import Lease
from ontologia.objects.lease_record import LeaseRecord
from ontologia.objects.location import Location
from ontologia.objects.opening import check_uri, open_objects
from ontologia.objects.proof import prove_conditions, prove_conditions_on
from ontologia.objects.requests import Request, RequestCount
from ontologia.objects.store import Objects, check_key
from ontologia.objects.system import Lock, System, Thread, new_token, new_uuid, system, using

__all__ = [
    "SYSTEM_CLOCK",
    "Blob",
    "Clock",
    "Committed",
    "ConditionFailed",
    "FileCache",
    "Info",
    "Lease",
    "LeaseRecord",
    "Location",
    "Lock",
    "ObjectNotFound",
    "Objects",
    "Rejected",
    "Request",
    "RequestCount",
    "System",
    "SystemClock",
    "Thread",
    "check_key",
    "check_uri",
    "conditional_put",
    "damage_error",
    "is_transient",
    "may_be_applied",
    "new_token",
    "new_uuid",
    "new_writer_id",
    "open_objects",
    "pauses",
    "prove_conditions",
    "prove_conditions_on",
    "system",
    "using",
    "utc_now",
]
