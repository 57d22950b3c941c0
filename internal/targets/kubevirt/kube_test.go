//go:build kube

package kubevirt

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/kubevirt/kube"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/targettest"
)

// decamp works with a real API server that has the definitions of KubeVirt and CDI.
func TestRealAPIServer(t *testing.T) {
	s := startAPIServer(t)
	t.Run("reports missing KubeVirt", func(t *testing.T) {
		err := s.openCluster(t, s.admin, "default").Check(t.Context(), biosVM())
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "no KubeVirt") {
			t.Error(err)
		}
	})
	s.installCRDs(t)
	c := startControllers(t, s)
	for name, test := range map[string]func(*testing.T, *fakeControllers){
		"accepts manifests":            testManifests,
		"refuses unknown fields":       testUnknownFields,
		"distinguishes objects":        testObjectErrors,
		"keeps foreign objects":        testForeignVolumeStays,
		"keeps running VMs":            testRunningVMStays,
		"starts a VM":                  testStart,
		"reports account errors":       testAccountErrors,
		"accepts published privileges": testPublishedPrivileges,
		"reports a quota":              testQuota,
		"passes the conformance suite": testConformance,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// installCRDs installs the definitions of KubeVirt and CDI.
func (s *apiServer) installCRDs(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(buildDir + "/crds.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		delete(crd, "status")
		s.create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldValidation=Strict", crd)
	}
	for _, k := range []kube.Kind{machines, volumes, cdiConfigs} {
		s.eventually(t, k.Plural+" are served", func() bool {
			group := "/apis/" + k.Group + "/" + k.Version // discovery is updated later than the objects
			for _, path := range []string{group, group + "/" + k.Plural} {
				if code, _, err := s.send(t.Context(), http.MethodGet, path, "", nil); err != nil || code != http.StatusOK {
					return false
				}
			}
			return true
		})
	}
}

var namespaceCount atomic.Int64

// newNamespace creates a namespace for a test.
func (s *apiServer) newNamespace(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("vms-%d", namespaceCount.Add(1))
	s.create(t, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	return name
}

// objectPath returns the path of an object, or of all objects of the kind if name is empty.
func objectPath(k kube.Kind, namespace, name string) string {
	path := "/apis/" + k.Group + "/" + k.Version + "/namespaces/" + namespace + "/" + k.Plural
	if name == "" {
		return path
	}
	return path + "/" + name
}

// kindOf returns the kind of an object in the manifests.
func kindOf(o map[string]any) kube.Kind {
	if o["kind"] == "DataVolume" {
		return volumes
	}
	return machines
}

// setNamespace sets the namespace of an object and returns it.
func setNamespace(namespace string, o map[string]any) map[string]any {
	o["metadata"].(map[string]any)["namespace"] = namespace
	return o
}

// The server accepts every object of every golden manifest in a dry run, and stores it with the same spec.
func testManifests(t *testing.T, c *fakeControllers) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		namespace := c.server.newNamespace(t)
		client := c.server.newClient(t, c.server.admin, namespace)
		for _, o := range readDocuments(t, path) {
			setNamespace(namespace, o)
			name := o["metadata"].(map[string]any)["name"].(string)
			if err := client.Try(t.Context(), kindOf(o), namespace, o); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if err := client.Read(t.Context(), kindOf(o), namespace, name, nil); !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: the object exists after the dry run: %v", path, err)
			}
			var got map[string]any
			if err := client.Create(t.Context(), kindOf(o), namespace, o, &got); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if want, have := asJSON(t, o["spec"]), asJSON(t, got["spec"]); string(want) != string(have) {
				t.Errorf("%s: spec %s\nis stored as %s", path, want, have)
			}
		}
	}
}

// The error for an unknown field or an invalid value names the field.
func testUnknownFields(t *testing.T, c *fakeControllers) {
	namespace := c.server.newNamespace(t)
	client := c.server.newClient(t, c.server.admin, namespace)
	for _, change := range []struct {
		kind, message string
		with          func(spec map[string]any)
	}{
		{"VirtualMachine", `unknown field "spec.bogus"`, func(spec map[string]any) { spec["bogus"] = 1 }},
		{"VirtualMachine", "spec.runStrategy", func(spec map[string]any) { spec["runStrategy"] = 7 }},
		{"VirtualMachine", "spec.template", func(spec map[string]any) { delete(spec, "template") }},
		{"DataVolume", `unknown field "spec.storage.bogus"`, func(spec map[string]any) { spec["storage"].(map[string]any)["bogus"] = 1 }},
		{"DataVolume", "spec.contentType", func(spec map[string]any) { spec["contentType"] = "tar" }},
	} {
		for _, o := range readDocuments(t, "testdata/bios.yaml") {
			if o["kind"] != change.kind {
				continue
			}
			change.with(o["spec"].(map[string]any))
			for what, err := range map[string]error{
				"dry run": client.Try(t.Context(), kindOf(o), namespace, setNamespace(namespace, o)),
				"create":  client.Create(t.Context(), kindOf(o), namespace, setNamespace(namespace, o), nil),
			} {
				if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), change.message) || fault.HintOf(err) == "" {
					t.Errorf("%s: got %v (%v), want %s", what, err, fault.KindOf(err), change.message)
				}
			}
		}
	}
}

// The client distinguishes objects that are missing, exist already, have another UID, or have changed.
func testObjectErrors(t *testing.T, c *fakeControllers) {
	namespace := c.server.newNamespace(t)
	client := c.server.newClient(t, c.server.admin, namespace)
	ctx := t.Context()
	o := setNamespace(namespace, readDocuments(t, "testdata/bare.yaml")[0])
	name := o["metadata"].(map[string]any)["name"].(string)
	want := func(what string, err error, kind fault.Kind) {
		t.Helper()
		if !fault.Is(err, kind) {
			t.Errorf("%s: got %v (%v), want %v", what, err, fault.KindOf(err), kind)
		}
	}
	want("read a missing object", client.Read(ctx, machines, namespace, name, nil), fault.NotFound)
	want("delete a missing object", client.Delete(ctx, machines, namespace, name, kube.Only{UID: "x"}), fault.NotFound)
	var first, now state
	if err := client.Create(ctx, machines, namespace, o, &first); err != nil {
		t.Fatal(err)
	}
	want("create again", client.Create(ctx, machines, namespace, o, nil), fault.Conflict)
	want("dry run again", client.Try(ctx, machines, namespace, o), fault.Conflict)
	want("delete another", client.Delete(ctx, machines, namespace, name, kube.Only{UID: "00000000-0000-0000-0000-000000000000"}), fault.Conflict)
	c.server.patch(t, objectPath(machines, namespace, name), map[string]any{"spec": map[string]any{"runStrategy": "Always"}})
	old := kube.Only{UID: first.Metadata.UID, ResourceVersion: first.Metadata.ResourceVersion}
	want("delete a changed object", client.Delete(ctx, machines, namespace, name, old), fault.Conflict)
	if err := client.Read(ctx, machines, namespace, name, &now); err != nil || now.Metadata.UID != first.Metadata.UID {
		t.Fatalf("%+v, %v", now, err)
	}
	if err := client.Delete(ctx, machines, namespace, name, kube.Only{UID: now.Metadata.UID, ResourceVersion: now.Metadata.ResourceVersion}); err != nil {
		t.Error(err)
	}
}

// Withdraw keeps a volume that has the label of the VM but another identity.
func testForeignVolumeStays(t *testing.T, c *fakeControllers) {
	namespace := c.server.newNamespace(t)
	cluster := c.server.openCluster(t, c.server.admin, namespace)
	d, contents := newDelivery(t)
	if _, err := cluster.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for i, want := range contents {
		if got := c.uploadedImage(namespace, fmt.Sprintf("web-01-disk%d", i)); string(got) != string(want) {
			t.Errorf("disk %d has %d bytes that differ from its source", i, len(got))
		}
	}
	other := setNamespace(namespace, readDocuments(t, "testdata/bios.yaml")[0])
	m := other["metadata"].(map[string]any)
	m["name"], m["labels"] = "theirs", sourceLabels(d.VM)
	m["annotations"].(map[string]any)[uuidNote] = "another"
	if err := cluster.client.Create(t.Context(), kindOf(other), namespace, other, nil); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	if left := c.describeObjects(t, namespace); len(left) != 1 || !strings.Contains(left[0], " theirs ") {
		t.Errorf("got objects %q, want only the foreign volume", left)
	}
}

// Withdraw keeps a VM that runs, or whose run strategy starts it, with its disks.
func testRunningVMStays(t *testing.T, c *fakeControllers) {
	for name, powerOn := range map[string]func(path string){
		"to run": func(path string) {
			c.server.patch(t, path, map[string]any{"spec": map[string]any{"runStrategy": "Always"}})
		},
		"ending": func(path string) {
			c.server.patch(t, path+"/status", map[string]any{"status": map[string]any{"created": true}})
		},
	} {
		namespace := c.server.newNamespace(t)
		cluster := c.server.openCluster(t, c.server.admin, namespace)
		d, _ := newDelivery(t)
		if _, err := cluster.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		powerOn(objectPath(machines, namespace, "web-01"))
		before := c.describeObjects(t, namespace)
		if err := cluster.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "virtctl") {
			t.Errorf("%s: %v", name, err)
		}
		if now := c.describeObjects(t, namespace); len(now) != 3 || strings.Join(now, "\n") != strings.Join(before, "\n") {
			t.Errorf("%s: Withdraw changes the objects to %q", name, now)
		}
	}
}

// Start sets the run strategy once, for the version of the VM that it has read, and waits until the VM runs. Withdraw
// then refuses.
func testStart(t *testing.T, c *fakeControllers) {
	namespace := c.server.newNamespace(t)
	cluster := c.server.openCluster(t, c.server.admin, namespace)
	d, _ := newDelivery(t)
	if _, err := cluster.Start(t.Context(), d.Definition); !fault.Is(err, fault.NotFound) {
		t.Errorf("Start without a VM: got %v, want not found", err)
	}
	if _, err := cluster.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	c.enableStart(namespace)
	var off, on state
	read := func(s *state) {
		t.Helper()
		if err := cluster.client.Read(t.Context(), machines, namespace, "web-01", s); err != nil {
			t.Fatal(err)
		}
	}
	read(&off)
	s, err := cluster.Start(t.Context(), d.Definition)
	if err != nil || !strings.HasSuffix(s.Console, "-n "+namespace+" console web-01") {
		t.Fatalf("%+v, %v", s, err)
	}
	if read(&on); on.Spec.RunStrategy != "Always" || on.Status.Printable != "Running" || on.Metadata.UID != off.Metadata.UID {
		t.Errorf("got %+v, want the same VM running", on)
	}
	change := func(version string, fields map[string]any, want fault.Kind) {
		t.Helper()
		if err := cluster.client.Merge(t.Context(), machines, namespace, "web-01", version, fields); !fault.Is(err, want) {
			t.Errorf("%v for version %s: got %v (%v), want %v", fields, version, err, fault.KindOf(err), want)
		}
	}
	change(off.Metadata.ResourceVersion, map[string]any{"spec": map[string]any{"runStrategy": "Halted"}}, fault.Conflict)
	change(on.Metadata.ResourceVersion, map[string]any{"spec": map[string]any{"bogus": true}}, fault.Invalid)
	if err := cluster.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) {
		t.Errorf("Withdraw of a running VM: got %v, want a conflict", err)
	}
}

// newAccount creates a service account and returns a token for it.
func (s *apiServer) newAccount(t *testing.T, namespace string) string {
	t.Helper()
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	s.create(t, path, map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "decamp"}})
	reply := s.create(t, path+"/decamp/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 3600},
	})
	return reply["status"].(map[string]any)["token"].(string)
}

// A wrong token is a login error. For an account without privileges, the error names them and the hint has a command
// that grants them.
func testAccountErrors(t *testing.T, c *fakeControllers) {
	namespace := c.server.newNamespace(t)
	err := c.server.openCluster(t, "wrong", namespace).Check(t.Context(), biosVM())
	if !fault.Is(err, fault.Denied) || !errors.Is(err, fault.ErrLogin) || !strings.Contains(fault.HintOf(err), "kubectl create token") {
		t.Errorf("a wrong token: %v: %q", err, fault.HintOf(err))
	}
	token := c.server.newAccount(t, namespace)
	err = c.server.openCluster(t, token, namespace).Check(t.Context(), biosVM())
	if !fault.Is(err, fault.Denied) || errors.Is(err, fault.ErrLogin) || !strings.Contains(err.Error(), "datavolumes.cdi.kubevirt.io") ||
		!strings.Contains(fault.HintOf(err), "kubectl -n "+namespace+" create rolebinding decamp --clusterrole=edit") {
		t.Errorf("check without rights: %v: %q", err, fault.HintOf(err))
	}
	d, _ := newDelivery(t)
	_, err = c.server.openCluster(t, token, namespace).Deliver(t.Context(), d)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "system:serviceaccount:"+namespace+":decamp") || !strings.Contains(fault.HintOf(err), "can-i") {
		t.Errorf("deliver without rights: %v: %q", err, fault.HintOf(err))
	}
}

// grantRole applies packaging/privileges/kubernetes.yaml in a namespace, except for the verb that starts VMs.
func (s *apiServer) grantRole(t *testing.T, namespace string) {
	t.Helper()
	for _, o := range readDocuments(t, privilegesFile) {
		kind, meta := o["kind"].(string), o["metadata"].(map[string]any)
		if kind == "ServiceAccount" {
			continue // the account exists already
		}
		path := "/apis/rbac.authorization.k8s.io/v1/"
		if !strings.HasPrefix(kind, "Cluster") {
			path += "namespaces/" + namespace + "/"
			meta["namespace"] = namespace
		} else {
			meta["name"] = namespace // the tests share the cluster
		}
		for _, subject := range objectList(o["subjects"]) {
			subject["namespace"] = namespace
		}
		if ref, ok := o["roleRef"].(map[string]any); ok && ref["kind"] == "ClusterRole" {
			ref["name"] = namespace
		}
		for _, rule := range objectList(o["rules"]) {
			rule["verbs"] = slices.DeleteFunc(rule["verbs"].([]any), func(verb any) bool { return verb == "patch" })
		}
		s.create(t, path+strings.ToLower(kind)+"s", o)
	}
}

// The published privileges suffice to deliver a VM. Starting it requires one more.
func testPublishedPrivileges(t *testing.T, c *fakeControllers) {
	namespace := c.server.newNamespace(t)
	token := c.server.newAccount(t, namespace)
	c.server.grantRole(t, namespace)
	cluster := c.server.openCluster(t, token, namespace)
	d, _ := newDelivery(t)
	c.server.eventually(t, "the role of the account is effective", func() bool { // RBAC applies roles with a delay
		err := cluster.Check(t.Context(), d.VM)
		if err != nil && !fault.Is(err, fault.Denied) {
			t.Fatal(err)
		}
		return err == nil
	})
	if _, err := cluster.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if objects := c.describeObjects(t, namespace); len(objects) != 3 {
		t.Errorf("got objects %q, want 3", objects)
	}
	if _, err := cluster.Start(t.Context(), d.Definition); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "--verb=patch") {
		t.Errorf("Start without the privilege: %v: %q", err, fault.HintOf(err))
	}
	if err := cluster.Withdraw(t.Context(), d.VM); err != nil {
		t.Error(err)
	}
	if left := c.describeObjects(t, namespace); len(left) > 0 {
		t.Errorf("remaining objects: %q", left)
	}
}

// An exceeded quota is reported as such, not as a missing privilege.
func testQuota(t *testing.T, c *fakeControllers) {
	namespace := c.server.newNamespace(t)
	hard := map[string]any{"hard": map[string]any{"count/datavolumes.cdi.kubevirt.io": "1"}}
	path := "/api/v1/namespaces/" + namespace + "/resourcequotas"
	c.server.create(t, path, map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "few"}, "spec": hard})
	c.server.patch(t, path+"/few/status", map[string]any{"status": map[string]any{
		"hard": hard["hard"], "used": map[string]any{"count/datavolumes.cdi.kubevirt.io": "0"}, // the quota controller would set this
	}})
	d, _ := newDelivery(t)
	_, err := c.server.openCluster(t, c.server.admin, namespace).Deliver(t.Context(), d)
	if !fault.Is(err, fault.Full) || !strings.Contains(fault.HintOf(err), "resourcequota") {
		t.Errorf("got %v (%v), hint %q", err, fault.KindOf(err), fault.HintOf(err))
	}
	if left := c.describeObjects(t, namespace); len(left) > 0 {
		t.Errorf("remaining objects: %q", left)
	}
}

// The real API server passes the conformance suite. TestClusterConformance runs the cases with lost and canceled
// calls at the emulated cluster, which is faster.
func testConformance(t *testing.T, c *fakeControllers) {
	targettest.Run(t, targettest.Harness{
		New: func(t *testing.T) targettest.Site {
			namespace := c.server.newNamespace(t)
			return targettest.Site{
				Platform: c.server.openCluster(t, c.server.admin, namespace),
				VMs:      func(t *testing.T) []targettest.StoredVM { return c.storedVMs(t, namespace) },
				Objects:  func(t *testing.T) []string { return c.describeObjects(t, namespace) },
				Occupy: func(t *testing.T, vm *inventory.VM) {
					o := setNamespace(namespace, readDocuments(t, "testdata/bare.yaml")[0])
					o["metadata"].(map[string]any)["name"] = Name(vm.Name)
					c.server.create(t, objectPath(machines, namespace, ""), o)
				},
			}
		},
		Denied: func(t *testing.T) platform.Platform {
			return c.server.openCluster(t, "wrong", c.server.newNamespace(t))
		},
		Unreachable: func(t *testing.T) platform.Platform {
			return openClusterAt(t, fmt.Sprintf("https://127.0.0.1:%d", freePort(t)), c.server.ca, "any", "default")
		},
		SpaceUnknown: true,
	})
}

// listObjects returns the objects of a kind in a namespace.
func (c *fakeControllers) listObjects(t *testing.T, k kube.Kind, namespace string) (all []map[string]any) {
	t.Helper()
	o := c.server.mustSend(t, http.MethodGet, objectPath(k, namespace, ""), "", nil)
	for _, item := range o["items"].([]any) {
		all = append(all, item.(map[string]any))
	}
	return all
}

// storedVMs returns the VMs of a namespace.
func (c *fakeControllers) storedVMs(t *testing.T, namespace string) (all []targettest.StoredVM) {
	t.Helper()
	for _, o := range c.listObjects(t, machines, namespace) {
		m := decodeObject[virtualMachine](t, o)
		s := storedVM(t, m)
		s.ID = m.Metadata.Namespace + "/" + m.Metadata.Name
		for _, v := range m.Spec.Template.Spec.Volumes {
			s.Disks = append(s.Disks, c.uploadedImage(namespace, v.DataVolume.Name))
		}
		all = append(all, s)
	}
	return all
}

// describeObjects returns one line for each VM and volume of a namespace.
func (c *fakeControllers) describeObjects(t *testing.T, namespace string) (all []string) {
	t.Helper()
	for _, k := range []kube.Kind{machines, volumes} {
		for _, o := range c.listObjects(t, k, namespace) {
			m := decodeObject[virtualMachine](t, o).Metadata
			all = append(all, fmt.Sprintf("%s %s %s %s %x", k.Plural, m.Name, m.UID, asJSON(t, o["spec"]), sha256.Sum256(c.uploadedImage(namespace, m.Name))))
		}
	}
	return all
}
