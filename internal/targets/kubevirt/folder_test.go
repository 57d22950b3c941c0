package kubevirt

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/platform"
)

// The names of a VM and its host cannot end the comment at the head of the file. The comment contains the remaining
// steps.
func TestManifestCommentListsRemainingSteps(t *testing.T) {
	f := &Folder{t.TempDir(), Options{Namespace: "vms"}}
	def := newDefinition(changedVM(biosVM(), func(vm *inventory.VM) { vm.Name, vm.HostName = "web 01\n- kind: Evil", "esx\u2028kind: Evil" }))
	def.Images[0].Final = f.root + "/it's/web 01.raw"
	r, err := f.Deliver(t.Context(), platform.Delivery{Definition: def})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := bytes.Cut(text, []byte("\napiVersion:"))
	for line := range strings.Lines(string(head)) {
		if !strings.HasPrefix(line, "#") || strings.ContainsRune(line, '\u2028') {
			t.Errorf("%q is not a comment", line)
		}
	}
	for _, want := range []string{
		"kubectl apply -f " + r.Name + ".yaml\n",
		"virtctl -n vms image-upload dv " + r.Name + `-disk0 --no-create --force-bind --image-path='it'\''s/web 01.raw'`,
		"virtctl -n vms start " + r.Name + "\n",
		"KubeVirt has no vmxnet3",
	} {
		if !strings.Contains(string(head), want) {
			t.Errorf("%q is not in:\n%s", want, head)
		}
	}
	manifests, _, err := Manifests(def, f.opts)
	if err != nil || !bytes.HasSuffix(text, manifests) {
		t.Errorf("%v: the manifests differ from those of a cluster", err)
	}
}

// A file that decamp did not write for the VM is a conflict and is not changed.
func TestFolderKeepsForeignFiles(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
		"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\nkind: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
	for name, text := range map[string]string{
		"empty": "", "no YAML": "\t{", "an alias bomb": bomb, "no owner": "kind: VirtualMachine\n",
		"another VM": "kind: VirtualMachine\nmetadata: {annotations: {decamp.github.io/ref: '8'}}\n",
		"half":       "kind: DataVolume\nmetadata: {annotations: {decamp.github.io/ref: '7'}}\n",
	} {
		f, d := &Folder{root: t.TempDir()}, platform.Delivery{Definition: newDefinition(biosVM())}
		if err := os.WriteFile(f.manifestPath(d.VM), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := f.Deliver(t.Context(), d)
		for call, err := range map[string]error{"Check": f.Check(t.Context(), d.VM), "Deliver": err} {
			if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
				t.Errorf("%s: %s: %v", name, call, err)
			}
		}
		if err := f.Withdraw(t.Context(), d.VM); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.ReadFile(f.manifestPath(d.VM)); err != nil || string(now) != text {
			t.Errorf("%s: %q, %v", name, now, err)
		}
	}
}

func TestMissingFolder(t *testing.T) {
	f := &Folder{root: t.TempDir() + "/not"}
	if err := f.Check(t.Context(), biosVM()); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want not found with a hint", err)
	}
}

// A file belongs to at most one VM.
func FuzzMadeOf(f *testing.F) {
	text, _, err := Manifests(newDefinition(biosVM()), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("kind: VirtualMachine\n---\na: [&a [*a]]"))
	other := changedVM(biosVM(), func(vm *inventory.VM) { vm.UUID = "564d1234-0000-1111-2222-333344446666" })
	f.Fuzz(func(t *testing.T, text []byte) {
		if madeOf(bytes.NewReader(text), biosVM()) == nil && madeOf(bytes.NewReader(text), other) == nil {
			t.Errorf("%q belongs to two VMs", text)
		}
	})
}
