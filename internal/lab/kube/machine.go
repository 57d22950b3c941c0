package kube

import (
	"fmt"
	"maps"
	"net/http"
)

// powered is how many looks a VM takes until it runs. The controller sees at the first of them that it is
// to, so that it shows as Stopped until then, and its pod is scheduled at the second.
const powered = 3

// live advances a VM in time, as KubeVirt's controller does. A VM without a run strategy is unchanged.
func (c *Cluster) live(k *kept) {
	strategy, _ := dig(k.object, "spec", "runStrategy").(string)
	if strategy == "" {
		return
	}
	if strategy == "Halted" || strategy == "Manual" {
		k.on = 0
		c.say(k, "Stopped")
		return
	}
	k.on++
	switch {
	case k.on == 1:
		c.say(k, "Stopped")
	case k.on == 2:
		c.say(k, "Provisioning")
	case c.config.Hitch != "" && (c.config.Passes == 0 || k.on-powered < c.config.Passes):
		c.say(k, c.config.Hitch)
	default:
		c.say(k, "Running")
	}
}

// complaints are the conditions of a VM at a hitch, as virt-controller writes them: copied from its
// VirtualMachineInstance, or set on the VM. Other hitches have no condition.
var complaints = map[string]object{
	"ErrorUnschedulable": {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient memory."},
	"ErrorPvcNotFound":   {"type": "Synchronized", "status": "False", "reason": "FailedPvcNotFound", "message": "failed to find a PVC of the VM"},
	"ErrImagePull":       {"type": "Synchronized", "status": "False", "reason": "ErrImagePull", "message": "back-off pulling image virt-launcher"},
	"CrashLoopBackOff":   {"type": "Ready", "status": "False", "reason": "VMINotExists", "message": "VMI does not exist"},
	"Starting":           {"type": "Failure", "status": "True", "reason": "FailedCreate", "message": "virtualmachineinstances is forbidden: exceeded quota: few"},
}

// say has a VM's status be something. What is new makes another version of the object, as each change of a
// status does.
func (c *Cluster) say(k *kept, printable string) {
	if dig(k.object, "status", "printableStatus") == printable {
		return
	}
	conditions := []object{{"type": "LiveMigratable", "status": "True", "message": "all is well with that"}}
	if bad := complaints[printable]; bad != nil {
		conditions = append(conditions, bad)
	}
	k.object["status"] = object{"printableStatus": printable, "created": printable != "Stopped" && printable != "CrashLoopBackOff", "conditions": conditions}
	c.version(k)
}

// version makes another one of an object.
func (c *Cluster) version(k *kept) {
	c.serial++
	k.object["metadata"].(object)["resourceVersion"] = fmt.Sprint(c.serial)
}

// patch merges a patch into an object, if the preconditions hold.
func (c *Cluster) patch(w http.ResponseWriter, r *http.Request, at address, in object) {
	k := c.objects[at.key()]
	other := func(what string) bool {
		want := dig(in, "metadata", what)
		return want != nil && want != dig(k.object, "metadata", what)
	}
	switch {
	case r.Header.Get("Content-Type") != "application/merge-patch+json":
		refuse(w, http.StatusUnsupportedMediaType, "the body of the request was in an unknown format")
	case r.URL.Query().Get("fieldValidation") != "Strict":
		refuse(w, http.StatusBadRequest, "the lab has no lenient clients")
	case k == nil:
		refuse(w, http.StatusNotFound, fmt.Sprintf("%s %q not found", at.plural, at.name))
	case other("resourceVersion"):
		refuse(w, http.StatusConflict, "the object has been modified; please apply your changes to the latest version and try again")
	case other("uid"): // as the real API server answers
		refuse(w, http.StatusUnprocessableEntity, "metadata.uid: Invalid value: field is immutable")
	default:
		merge(k.object, in)
		c.version(k)
		reply(w, http.StatusOK, k.object)
	}
}

// merge implements RFC 7386: objects are merged, and null removes a key.
func merge(into, from object) {
	for key, value := range from {
		inner, isObject := value.(object)
		have, hasObject := into[key].(object)
		switch {
		case value == nil:
			delete(into, key)
		case isObject && hasObject:
			merge(have, inner)
		case isObject:
			into[key] = maps.Clone(inner)
		default:
			into[key] = value
		}
	}
}
