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

// Whatever a VM and its host are called, what is said of them stays a comment.
func TestFolderSaysWhatIsLeftToDo(t *testing.T) {
	f := &Folder{t.TempDir(), Options{Namespace: "vms"}}
	def := definition(with(biosVM(), func(vm *inventory.VM) { vm.Name, vm.HostName = "web 01\n- kind: Evil", "esx\u2028kind: Evil" }))
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
			t.Errorf("%q is no comment", line)
		}
	}
	for _, want := range []string{
		"kubectl apply -f " + r.Name + ".yaml\n",
		"virtctl -n vms image-upload dv " + r.Name + `-disk0 --no-create --force-bind --image-path='it'\''s/web 01.raw'`,
		"virtctl -n vms start " + r.Name + "\n",
		"KubeVirt has no vmxnet3",
	} {
		if !strings.Contains(string(head), want) {
			t.Errorf("nothing says %q:\n%s", want, head)
		}
	}
	manifests, _, err := Manifests(def, f.opts)
	if err != nil || !bytes.HasSuffix(text, manifests) {
		t.Errorf("%v: the manifests are not those of a cluster", err)
	}
}

// What is in the way is a Conflict, whatever it is, and stays.
func TestFolderLeavesStrangersAlone(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
		"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\nkind: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
	for name, text := range map[string]string{
		"nothing": "", "no YAML": "\t{", "an alias bomb": bomb, "nobody's": "kind: VirtualMachine\n",
		"another's": "kind: VirtualMachine\nmetadata: {annotations: {decamp.github.io/ref: '8'}}\n",
		"half":      "kind: DataVolume\nmetadata: {annotations: {decamp.github.io/ref: '7'}}\n",
	} {
		f, d := &Folder{root: t.TempDir()}, platform.Delivery{Definition: definition(biosVM())}
		if err := os.WriteFile(f.manifestPath(d.VM), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := f.Deliver(t.Context(), d)
		for doing, err := range map[string]error{"Check": f.Check(t.Context(), d.VM), "Deliver": err} {
			if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
				t.Errorf("%s: %s: %v", name, doing, err)
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

func TestFolderThatIsNotThere(t *testing.T) {
	f := &Folder{root: t.TempDir() + "/not"}
	if err := f.Check(t.Context(), biosVM()); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

// What is one VM's is not another's as well, whatever a file says.
func FuzzMadeOf(f *testing.F) {
	text, _, err := Manifests(definition(biosVM()), Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("kind: VirtualMachine\n---\na: [&a [*a]]"))
	other := with(biosVM(), func(vm *inventory.VM) { vm.UUID = "564d1234-0000-1111-2222-333344446666" })
	f.Fuzz(func(t *testing.T, text []byte) {
		if madeOf(bytes.NewReader(text), biosVM()) == nil && madeOf(bytes.NewReader(text), other) == nil {
			t.Errorf("%q is of two VMs", text)
		}
	})
}
