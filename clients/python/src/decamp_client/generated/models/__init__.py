"""Contains all the data models used in inputs/outputs"""

from .busy import Busy
from .capacity import Capacity
from .credential_item import CredentialItem
from .drain_in_body import DrainInBody
from .entry import Entry
from .error_detail import ErrorDetail
from .failure import Failure
from .finding import Finding
from .limit import Limit
from .limits_in_body import LimitsInBody
from .list_body_credential_item import ListBodyCredentialItem
from .list_body_entry import ListBodyEntry
from .list_body_limit import ListBodyLimit
from .list_body_notification_count import ListBodyNotificationCount
from .list_body_place_item import ListBodyPlaceItem
from .list_body_plan import ListBodyPlan
from .list_body_progress import ListBodyProgress
from .list_body_rehearsed import ListBodyRehearsed
from .list_body_vm_item import ListBodyVmItem
from .list_body_worker import ListBodyWorker
from .list_v_ms_state_item import ListVMsStateItem
from .notification_count import NotificationCount
from .order import Order
from .order_command import OrderCommand
from .place_item import PlaceItem
from .plan import Plan
from .plan_check import PlanCheck
from .plan_counts import PlanCounts
from .problem import Problem
from .problem_kind import ProblemKind
from .progress import Progress
from .rehearsal import Rehearsal
from .rehearsal_in_body import RehearsalInBody
from .rehearsed import Rehearsed
from .scheduler_out_body import SchedulerOutBody
from .vm_command_body import VmCommandBody
from .vm_command_body_command import VmCommandBodyCommand
from .vm_item import VmItem
from .worker import Worker
from .worker_offers import WorkerOffers

__all__ = (
    "Busy",
    "Capacity",
    "CredentialItem",
    "DrainInBody",
    "Entry",
    "ErrorDetail",
    "Failure",
    "Finding",
    "Limit",
    "LimitsInBody",
    "ListBodyCredentialItem",
    "ListBodyEntry",
    "ListBodyLimit",
    "ListBodyNotificationCount",
    "ListBodyPlaceItem",
    "ListBodyPlan",
    "ListBodyProgress",
    "ListBodyRehearsed",
    "ListBodyVmItem",
    "ListBodyWorker",
    "ListVMsStateItem",
    "NotificationCount",
    "Order",
    "OrderCommand",
    "PlaceItem",
    "Plan",
    "PlanCheck",
    "PlanCounts",
    "Problem",
    "ProblemKind",
    "Progress",
    "Rehearsal",
    "RehearsalInBody",
    "Rehearsed",
    "SchedulerOutBody",
    "VmCommandBody",
    "VmCommandBodyCommand",
    "VmItem",
    "Worker",
    "WorkerOffers",
)
