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

// A real API server judges, keeps and refuses what decamp does, with the definitions of KubeVirt and CDI.
func TestRealAPIServer(t *testing.T) {
	s := startAPIServer(t)
	t.Run("knows no KubeVirt yet", func(t *testing.T) {
		err := s.place(t, s.admin, "default").Check(t.Context(), biosVM())
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "no KubeVirt") {
			t.Error(err)
		}
	})
	s.define(t)
	c := startControllers(t, s)
	for name, test := range map[string]func(*testing.T, *controllers){
		"takes manifests":           takesManifests,
		"refuses unknown fields":    refusesUnknownFields,
		"tells objects apart":       tellsObjectsApart,
		"keeps what others made":    keepsWhatOthersMade,
		"keeps what runs":           keepsWhatRuns,
		"starts what is off":        startsWhatIsOff,
		"knows accounts":            knowsAccounts,
		"lets an account in":        letsAnAccountIn,
		"bounds objects by a quota": boundsByQuota,
		"is a place":                isAPlace,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// define has the cluster know KubeVirt's and CDI's kinds.
func (s *apiServer) define(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(built + "/crds.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		delete(crd, "status")
		s.put(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldValidation=Strict", crd)
	}
	for _, k := range []kube.Kind{machines, volumes, cdiConfigs} {
		s.eventually(t, k.Plural+" are served", func() bool {
			group := "/apis/" + k.Group + "/" + k.Version // its discovery is updated later than its objects
			for _, path := range []string{group, group + "/" + k.Plural} {
				if code, _, err := s.send(t.Context(), http.MethodGet, path, "", nil); err != nil || code != http.StatusOK {
					return false
				}
			}
			return true
		})
	}
}

var numbered atomic.Int64

// namespace makes one for a test.
func (s *apiServer) namespace(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("vms-%d", numbered.Add(1))
	s.put(t, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	return name
}

// where is the path of objects of a kind, or of one of them.
func where(k kube.Kind, namespace, name string) string {
	path := "/apis/" + k.Group + "/" + k.Version + "/namespaces/" + namespace + "/" + k.Plural
	if name == "" {
		return path
	}
	return path + "/" + name
}

// kindOf is where an object of the manifests belongs.
func kindOf(o map[string]any) kube.Kind {
	if o["kind"] == "DataVolume" {
		return volumes
	}
	return machines
}

// in puts an object of the manifests into a namespace.
func in(namespace string, o map[string]any) map[string]any {
	o["metadata"].(map[string]any)["namespace"] = namespace
	return o
}

// Every object of every reviewed manifest is judged by a dry run, made, and read back with what it says.
func takesManifests(t *testing.T, c *controllers) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		namespace := c.server.namespace(t)
		client := c.server.client(t, c.server.admin, namespace)
		for _, o := range documents(t, path) {
			in(namespace, o)
			name := o["metadata"].(map[string]any)["name"].(string)
			if err := client.Try(t.Context(), kindOf(o), namespace, o); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if err := client.Read(t.Context(), kindOf(o), namespace, name, nil); !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: the dry run left something: %v", path, err)
			}
			var got map[string]any
			if err := client.Create(t.Context(), kindOf(o), namespace, o, &got); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if want, have := asJSON(t, o["spec"]), asJSON(t, got["spec"]); string(want) != string(have) {
				t.Errorf("%s: of %s\nthe cluster has %s", path, want, have)
			}
		}
	}
}

// A field that the cluster does not know is told by its name, and so is a value that does not fit.
func refusesUnknownFields(t *testing.T, c *controllers) {
	namespace := c.server.namespace(t)
	client := c.server.client(t, c.server.admin, namespace)
	for _, change := range []struct {
		kind, says string
		with       func(spec map[string]any)
	}{
		{"VirtualMachine", `unknown field "spec.bogus"`, func(spec map[string]any) { spec["bogus"] = 1 }},
		{"VirtualMachine", "spec.runStrategy", func(spec map[string]any) { spec["runStrategy"] = 7 }},
		{"VirtualMachine", "spec.template", func(spec map[string]any) { delete(spec, "template") }},
		{"DataVolume", `unknown field "spec.storage.bogus"`, func(spec map[string]any) { spec["storage"].(map[string]any)["bogus"] = 1 }},
		{"DataVolume", "spec.contentType", func(spec map[string]any) { spec["contentType"] = "tar" }},
	} {
		for _, o := range documents(t, "testdata/bios.yaml") {
			if o["kind"] != change.kind {
				continue
			}
			change.with(o["spec"].(map[string]any))
			for what, err := range map[string]error{
				"dry run": client.Try(t.Context(), kindOf(o), namespace, in(namespace, o)),
				"create":  client.Create(t.Context(), kindOf(o), namespace, in(namespace, o), nil),
			} {
				if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), change.says) || fault.HintOf(err) == "" {
					t.Errorf("%s: %v (%v), want %s", what, err, fault.KindOf(err), change.says)
				}
			}
		}
	}
}

// What is not there, what is there already, and what is another or changed by now.
func tellsObjectsApart(t *testing.T, c *controllers) {
	namespace := c.server.namespace(t)
	client := c.server.client(t, c.server.admin, namespace)
	ctx := t.Context()
	o := in(namespace, documents(t, "testdata/bare.yaml")[0])
	name := o["metadata"].(map[string]any)["name"].(string)
	want := func(what string, err error, kind fault.Kind) {
		t.Helper()
		if !fault.Is(err, kind) {
			t.Errorf("%s: %v (%v)", what, err, fault.KindOf(err))
		}
	}
	want("read nothing", client.Read(ctx, machines, namespace, name, nil), fault.NotFound)
	want("delete nothing", client.Delete(ctx, machines, namespace, name, kube.Only{UID: "x"}), fault.NotFound)
	var first, now state
	if err := client.Create(ctx, machines, namespace, o, &first); err != nil {
		t.Fatal(err)
	}
	want("create again", client.Create(ctx, machines, namespace, o, nil), fault.Conflict)
	want("try again", client.Try(ctx, machines, namespace, o), fault.Conflict)
	want("delete another", client.Delete(ctx, machines, namespace, name, kube.Only{UID: "00000000-0000-0000-0000-000000000000"}), fault.Conflict)
	c.server.patch(t, where(machines, namespace, name), map[string]any{"spec": map[string]any{"runStrategy": "Always"}})
	old := kube.Only{UID: first.Metadata.UID, ResourceVersion: first.Metadata.ResourceVersion}
	want("delete what changed", client.Delete(ctx, machines, namespace, name, old), fault.Conflict)
	if err := client.Read(ctx, machines, namespace, name, &now); err != nil || now.Metadata.UID != first.Metadata.UID {
		t.Fatalf("%+v, %v", now, err)
	}
	if err := client.Delete(ctx, machines, namespace, name, kube.Only{UID: now.Metadata.UID, ResourceVersion: now.Metadata.ResourceVersion}); err != nil {
		t.Error(err)
	}
}

// Volumes that have the label of a VM, and not its identity, are somebody's own; also if they are in its way.
func keepsWhatOthersMade(t *testing.T, c *controllers) {
	namespace := c.server.namespace(t)
	place := c.server.place(t, c.server.admin, namespace)
	d, contents := cargo(t)
	if _, err := place.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for i, want := range contents {
		if got := c.image(namespace, fmt.Sprintf("web-01-disk%d", i)); string(got) != string(want) {
			t.Errorf("disk %d has other bytes: %d of them", i, len(got))
		}
	}
	other := in(namespace, documents(t, "testdata/bios.yaml")[0])
	m := other["metadata"].(map[string]any)
	m["name"], m["labels"] = "theirs", sourceLabels(d.VM)
	m["annotations"].(map[string]any)[uuidNote] = "another"
	if err := place.client.Create(t.Context(), kindOf(other), namespace, other, nil); err != nil {
		t.Fatal(err)
	}
	if err := place.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	if left := c.things(t, namespace); len(left) != 1 || !strings.Contains(left[0], " theirs ") {
		t.Errorf("there is %q", left)
	}
}

// A VM that is on, or is to be, stays with its disks.
func keepsWhatRuns(t *testing.T, c *controllers) {
	for name, on := range map[string]func(path string){
		"to run": func(path string) {
			c.server.patch(t, path, map[string]any{"spec": map[string]any{"runStrategy": "Always"}})
		},
		"ending": func(path string) {
			c.server.patch(t, path+"/status", map[string]any{"status": map[string]any{"created": true}})
		},
	} {
		namespace := c.server.namespace(t)
		place := c.server.place(t, c.server.admin, namespace)
		d, _ := cargo(t)
		if _, err := place.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		on(where(machines, namespace, "web-01"))
		before := c.things(t, namespace)
		if err := place.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "virtctl") {
			t.Errorf("%s: %v", name, err)
		}
		if now := c.things(t, namespace); len(now) != 3 || strings.Join(now, "\n") != strings.Join(before, "\n") {
			t.Errorf("%s: there is %q", name, now)
		}
	}
}

// The order to run is taken once, of the VM as it was seen; then it runs, and stays.
func startsWhatIsOff(t *testing.T, c *controllers) {
	namespace := c.server.namespace(t)
	place := c.server.place(t, c.server.admin, namespace)
	d, _ := cargo(t)
	if _, err := place.Start(t.Context(), d.Definition); !fault.Is(err, fault.NotFound) {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := place.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	c.start(namespace)
	var off, on state
	read := func(s *state) {
		t.Helper()
		if err := place.client.Read(t.Context(), machines, namespace, "web-01", s); err != nil {
			t.Fatal(err)
		}
	}
	read(&off)
	s, err := place.Start(t.Context(), d.Definition)
	if err != nil || !strings.HasSuffix(s.Console, "-n "+namespace+" console web-01") {
		t.Fatalf("%+v, %v", s, err)
	}
	if read(&on); on.Spec.RunStrategy != "Always" || on.Status.Printable != "Running" || on.Metadata.UID != off.Metadata.UID {
		t.Errorf("it is %+v", on)
	}
	change := func(version string, fields map[string]any, want fault.Kind) {
		t.Helper()
		if err := place.client.Merge(t.Context(), machines, namespace, "web-01", version, fields); !fault.Is(err, want) {
			t.Errorf("%v of version %s: %v (%v)", fields, version, err, fault.KindOf(err))
		}
	}
	change(off.Metadata.ResourceVersion, map[string]any{"spec": map[string]any{"runStrategy": "Halted"}}, fault.Conflict)
	change(on.Metadata.ResourceVersion, map[string]any{"spec": map[string]any{"bogus": true}}, fault.Invalid)
	if err := place.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) {
		t.Errorf("withdrawn while it runs: %v", err)
	}
}

// account makes a service account, and returns a token of it.
func (s *apiServer) account(t *testing.T, namespace string) string {
	t.Helper()
	path := "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	s.put(t, path, map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "decamp"}})
	reply := s.put(t, path+"/decamp/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 3600},
	})
	return reply["status"].(map[string]any)["token"].(string)
}

// Nobody knows a wrong token; an account without rights is told which, and how it gets them.
func knowsAccounts(t *testing.T, c *controllers) {
	namespace := c.server.namespace(t)
	err := c.server.place(t, "wrong", namespace).Check(t.Context(), biosVM())
	if !fault.Is(err, fault.Denied) || !errors.Is(err, fault.ErrLogin) || !strings.Contains(fault.HintOf(err), "kubectl create token") {
		t.Errorf("a wrong token: %v: %q", err, fault.HintOf(err))
	}
	poor := c.server.account(t, namespace)
	err = c.server.place(t, poor, namespace).Check(t.Context(), biosVM())
	if !fault.Is(err, fault.Denied) || errors.Is(err, fault.ErrLogin) || !strings.Contains(err.Error(), "datavolumes.cdi.kubevirt.io") ||
		!strings.Contains(fault.HintOf(err), "kubectl -n "+namespace+" create rolebinding decamp --clusterrole=edit") {
		t.Errorf("check without rights: %v: %q", err, fault.HintOf(err))
	}
	d, _ := cargo(t)
	_, err = c.server.place(t, poor, namespace).Deliver(t.Context(), d)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "system:serviceaccount:"+namespace+":decamp") || !strings.Contains(fault.HintOf(err), "can-i") {
		t.Errorf("deliver without rights: %v: %q", err, fault.HintOf(err))
	}
}

// grant applies packaging/privileges/kubernetes.yaml in a namespace, but for the verb that starts VMs.
func (s *apiServer) grant(t *testing.T, namespace string) {
	t.Helper()
	for _, o := range documents(t, privilegesFile) {
		kind, meta := o["kind"].(string), o["metadata"].(map[string]any)
		if kind == "ServiceAccount" {
			continue // the account is there
		}
		path := "/apis/rbac.authorization.k8s.io/v1/"
		if !strings.HasPrefix(kind, "Cluster") {
			path += "namespaces/" + namespace + "/"
			meta["namespace"] = namespace
		} else {
			meta["name"] = namespace // the tests share the cluster
		}
		for _, subject := range list(o["subjects"]) {
			subject["namespace"] = namespace
		}
		if ref, ok := o["roleRef"].(map[string]any); ok && ref["kind"] == "ClusterRole" {
			ref["name"] = namespace
		}
		for _, rule := range list(o["rules"]) {
			rule["verbs"] = slices.DeleteFunc(rule["verbs"].([]any), func(verb any) bool { return verb == "patch" })
		}
		s.put(t, path+strings.ToLower(kind)+"s", o)
	}
}

// The rights that Check asks for, and to see where the upload proxy is, are all that is needed to bring a VM.
// To start it takes one more.
func letsAnAccountIn(t *testing.T, c *controllers) {
	namespace := c.server.namespace(t)
	token := c.server.account(t, namespace)
	c.server.grant(t, namespace)
	place := c.server.place(t, token, namespace)
	d, _ := cargo(t)
	c.server.eventually(t, "the account may", func() bool { // RBAC learns of roles a moment later
		err := place.Check(t.Context(), d.VM)
		if err != nil && !fault.Is(err, fault.Denied) {
			t.Fatal(err)
		}
		return err == nil
	})
	if _, err := place.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if things := c.things(t, namespace); len(things) != 3 {
		t.Errorf("there is %q", things)
	}
	if _, err := place.Start(t.Context(), d.Definition); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "--verb=patch") {
		t.Errorf("start without the right: %v: %q", err, fault.HintOf(err))
	}
	if err := place.Withdraw(t.Context(), d.VM); err != nil {
		t.Error(err)
	}
	if left := c.things(t, namespace); len(left) > 0 {
		t.Errorf("there is still %q", left)
	}
}

// What a quota refuses is no question of rights.
func boundsByQuota(t *testing.T, c *controllers) {
	namespace := c.server.namespace(t)
	hard := map[string]any{"hard": map[string]any{"count/datavolumes.cdi.kubevirt.io": "1"}}
	path := "/api/v1/namespaces/" + namespace + "/resourcequotas"
	c.server.put(t, path, map[string]any{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": map[string]any{"name": "few"}, "spec": hard})
	c.server.patch(t, path+"/few/status", map[string]any{"status": map[string]any{
		"hard": hard["hard"], "used": map[string]any{"count/datavolumes.cdi.kubevirt.io": "0"}, // as its controller would
	}})
	d, _ := cargo(t)
	_, err := c.server.place(t, c.server.admin, namespace).Deliver(t.Context(), d)
	if !fault.Is(err, fault.Full) || !strings.Contains(fault.HintOf(err), "resourcequota") {
		t.Errorf("%v (%v): %q", err, fault.KindOf(err), fault.HintOf(err))
	}
	if left := c.things(t, namespace); len(left) > 0 {
		t.Errorf("there is still %q", left)
	}
}

// The conformance suite of places. Calls that are lost or canceled it tries at the emulated cluster, which
// is quicker (TestClusterConformance).
func isAPlace(t *testing.T, c *controllers) {
	targettest.Run(t, targettest.Harness{
		New: func(t *testing.T) targettest.Site {
			namespace := c.server.namespace(t)
			return targettest.Site{
				Platform: c.server.place(t, c.server.admin, namespace),
				VMs:      func(t *testing.T) []targettest.StoredVM { return c.seen(t, namespace) },
				Objects:  func(t *testing.T) []string { return c.things(t, namespace) },
				Occupy: func(t *testing.T, vm *inventory.VM) {
					o := in(namespace, documents(t, "testdata/bare.yaml")[0])
					o["metadata"].(map[string]any)["name"] = Name(vm.Name)
					c.server.put(t, where(machines, namespace, ""), o)
				},
			}
		},
		Denied: func(t *testing.T) platform.Platform { return c.server.place(t, "wrong", c.server.namespace(t)) },
		Unreachable: func(t *testing.T) platform.Platform {
			return placeAt(t, fmt.Sprintf("https://127.0.0.1:%d", freePort(t)), c.server.ca, "any", "default")
		},
		SpaceUnknown: true,
	})
}

// list returns the objects of a kind.
func (c *controllers) list(t *testing.T, k kube.Kind, namespace string) (all []map[string]any) {
	t.Helper()
	o := c.server.want(t, http.MethodGet, where(k, namespace, ""), "", nil)
	for _, item := range o["items"].([]any) {
		all = append(all, item.(map[string]any))
	}
	return all
}

// seen are the VMs of a namespace.
func (c *controllers) seen(t *testing.T, namespace string) (all []targettest.StoredVM) {
	t.Helper()
	for _, o := range c.list(t, machines, namespace) {
		m := decode[virtualMachine](t, o)
		s := seen(t, m)
		s.ID = m.Metadata.Namespace + "/" + m.Metadata.Name
		for _, v := range m.Spec.Template.Spec.Volumes {
			s.Disks = append(s.Disks, c.image(namespace, v.DataVolume.Name))
		}
		all = append(all, s)
	}
	return all
}

// things are all objects of a namespace that may be decamp's.
func (c *controllers) things(t *testing.T, namespace string) (all []string) {
	t.Helper()
	for _, k := range []kube.Kind{machines, volumes} {
		for _, o := range c.list(t, k, namespace) {
			m := decode[virtualMachine](t, o).Metadata
			all = append(all, fmt.Sprintf("%s %s %s %s %x", k.Plural, m.Name, m.UID, asJSON(t, o["spec"]), sha256.Sum256(c.image(namespace, m.Name))))
		}
	}
	return all
}
