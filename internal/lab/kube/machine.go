package kube

import (
	"fmt"
	"maps"
	"net/http"
)

// powered is the number of requests until a VM runs. KubeVirt's controller notices the VM at the first,
// when it still shows Stopped, and schedules its pod at the second.
const powered = 3

// advanceVM moves a VM to its next status, as KubeVirt's controller does. A VM without a run strategy
// is unchanged.
func (c *Cluster) advanceVM(k *storedObject) {
	strategy, _ := valueAt(k.object, "spec", "runStrategy").(string)
	if strategy == "" {
		return
	}
	if strategy == "Halted" || strategy == "Manual" { // nothing starts the VM
		k.on = 0
		c.setVMStatus(k, "Stopped")
		return
	}
	k.on++
	switch {
	case k.on == 1: // the controller has not reacted yet
		c.setVMStatus(k, "Stopped")
	case k.on == 2: // the pod is scheduled
		c.setVMStatus(k, "Provisioning")
	case c.config.Hitch != "" && (c.config.Passes == 0 || k.on-powered < c.config.Passes):
		c.setVMStatus(k, c.config.Hitch)
	default:
		c.setVMStatus(k, "Running")
	}
}

// hitchConditions are the conditions of a VM that does not start, as virt-controller writes them:
// copied from its VirtualMachineInstance, or set on the VM. Other values of Config.Hitch add no
// condition.
var hitchConditions = map[string]object{
	"ErrorUnschedulable": {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient memory."},
	"ErrorPvcNotFound":   {"type": "Synchronized", "status": "False", "reason": "FailedPvcNotFound", "message": "failed to find a PVC of the VM"},
	"ErrImagePull":       {"type": "Synchronized", "status": "False", "reason": "ErrImagePull", "message": "back-off pulling image virt-launcher"},
	"CrashLoopBackOff":   {"type": "Ready", "status": "False", "reason": "VMINotExists", "message": "VMI does not exist"},
	"Starting":           {"type": "Failure", "status": "True", "reason": "FailedCreate", "message": "virtualmachineinstances is forbidden: exceeded quota: few"},
}

// setVMStatus sets the printable status of a VM and its conditions. A change increases the resource
// version.
func (c *Cluster) setVMStatus(k *storedObject, printable string) {
	if valueAt(k.object, "status", "printableStatus") == printable {
		return
	}
	conditions := []object{{"type": "LiveMigratable", "status": "True", "message": "all is well with that"}}
	if bad := hitchConditions[printable]; bad != nil {
		conditions = append(conditions, bad)
	}
	k.object["status"] = object{"printableStatus": printable, "created": printable != "Stopped" && printable != "CrashLoopBackOff", "conditions": conditions}
	c.bumpVersion(k)
}

// bumpVersion gives an object a new resource version. mu must be held.
func (c *Cluster) bumpVersion(k *storedObject) {
	c.serial++
	k.object["metadata"].(object)["resourceVersion"] = fmt.Sprint(c.serial)
}

// patchObject applies a merge patch, if UID and resource version in the patch match the object.
func (c *Cluster) patchObject(w http.ResponseWriter, r *http.Request, at address, in object) {
	k := c.objects[at.key()]
	other := func(what string) bool {
		want := valueAt(in, "metadata", what)
		return want != nil && want != valueAt(k.object, "metadata", what)
	}
	switch {
	case r.Header.Get("Content-Type") != "application/merge-patch+json":
		writeStatus(w, http.StatusUnsupportedMediaType, "the body of the request was in an unknown format")
	case r.URL.Query().Get("fieldValidation") != "Strict":
		writeStatus(w, http.StatusBadRequest, "the emulator requires fieldValidation=Strict")
	case k == nil:
		writeStatus(w, http.StatusNotFound, fmt.Sprintf("%s %q not found", at.plural, at.name))
	case other("resourceVersion"):
		writeStatus(w, http.StatusConflict, "the object has been modified; please apply your changes to the latest version and try again")
	case other("uid"): // error of the real API server
		writeStatus(w, http.StatusUnprocessableEntity, "metadata.uid: Invalid value: field is immutable")
	default:
		mergePatch(k.object, in)
		c.bumpVersion(k)
		writeJSON(w, http.StatusOK, k.object)
	}
}

// mergePatch implements JSON merge patches (RFC 7386): objects are merged, and null removes a key.
func mergePatch(into, from object) {
	for key, value := range from {
		inner, isObject := value.(object)
		have, hasObject := into[key].(object)
		switch {
		case value == nil: // null removes the key
			delete(into, key)
		case isObject && hasObject:
			mergePatch(have, inner)
		case isObject:
			into[key] = maps.Clone(inner)
		default:
			into[key] = value
		}
	}
}
