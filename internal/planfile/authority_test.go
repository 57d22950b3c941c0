package planfile

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// Each key of a plan has a class. Without one, an operator could use the rights of the server.
func TestEveryKeyIsClassified(t *testing.T) {
	if missing := Unclassified(); len(missing) > 0 {
		t.Errorf("keys without a class in authority.go: %v", missing)
	}
	seen := map[string]bool{}
	eachLeaf(reflect.TypeFor[File](), func(field string) { seen[field] = true })
	if len(seen) < 60 {
		t.Errorf("found %d keys, want at least 60", len(seen))
	}
	for field := range classes {
		if !seen[field] {
			t.Errorf("%s has a class, but is not a key", field)
		}
	}
}

// Unclassified finds a field without a class in any type.
func TestUnclassifiedFindsKeys(t *testing.T) {
	for _, field := range []string{"File.Name", "Credentials.File", "Options.KeyFiles", "Network.To", "Window.Zone", "Mapping.Names", "VM.UUID", "Hook.Command"} {
		class := classes[field]
		delete(classes, field)
		if missing := Unclassified(); !slices.Equal(missing, []string{field}) {
			t.Errorf("without the class of %s: got %v", field, missing)
		}
		classes[field] = class
	}
}

// A key without a class requires admin.
func TestUnclassifiedKeyRequiresAdmin(t *testing.T) {
	f := mustParse(t, "version: 1\nname: p\nsource: {url: esxi://root@h}\nselect: poweredOn\ndefaults: {to: [dir:/srv/vm], expect: x}\n")
	if keys := f.AdminOnly(); len(keys) > 0 {
		t.Fatalf("got %v, want no keys that require admin", keys)
	}
	class := classes["Options.Expect"]
	defer func() { classes["Options.Expect"] = class }()
	delete(classes, "Options.Expect")
	if keys := f.AdminOnly(); len(keys) != 1 || keys[0].Path != "defaults.expect" || keys[0].Pos.Line != 5 {
		t.Errorf("got %v", keys)
	}
}

// Only these keys of the plan that sets every key require admin.
func TestKeysThatRequireAdmin(t *testing.T) {
	text, err := os.ReadFile("testdata/v1/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, k := range mustParse(t, string(text)).AdminOnly() {
		if k.Pos.Line == 0 {
			t.Errorf("%s has no line", k.Path)
		}
		got[k.Path] = true
	}
	for _, want := range []string{
		"source.credentials.file", "source.ssh.user", "source.ssh.port", "source.ssh.key",
		"hooks.pre.command", "hooks.post.command", "defaults.hooks.pre.command", "defaults.virtioWin", "defaults.keyFiles", "defaults.applianceKernel",
		"defaults.nfc.plain", "defaults.landing.advertise", "defaults.landing.listen", "defaults.landing.portmap", "defaults.landing.allow",
	} {
		if !got[want] {
			t.Errorf("%s does not require admin: %v", want, slices.Sorted(maps.Keys(got)))
		}
	}
	for path := range got {
		if strings.HasSuffix(path, ".timeout") || strings.HasSuffix(path, ".select") || strings.HasSuffix(path, ".url") || strings.Contains(path, ".warm.") {
			t.Errorf("%s requires admin", path)
		}
	}
}

func TestDestinationsThatRequireAdmin(t *testing.T) {
	for text, want := range map[string]string{
		"dir:/srv/vm":          "",
		"dir:/srv/vm?token=/x": "",
		"kubevirt:/srv/vm":     "",
		"kubevirt:/srv/vm?namespace=a&storageClass=b&network=pod":     "",
		"kubevirt:/srv/vm?kubeconfig=/srv/vm/disk.raw":                "parameter kubeconfig",
		"kubevirt:/srv/vm?kube%63onfig=/srv/vm/disk.raw":              "parameter kubeconfig",
		"kubevirt:/srv/vm?namespace=a&uploadProxy=https://x":          "parameter uploadProxy",
		"kubevirt:/srv/vm?nothing=known":                              "parameter nothing",
		"kubevirt:/srv/vm?namespace=a;kubeconfig=/x":                  "cannot be read",
		"proxmox:https://evil:8006/pve?token=/etc/token&staging=/srv": "an address of proxmox",
		"libvirt:qemu:///system?staging=/srv":                         "an address of libvirt",
		"libvirt:qemu+unix:///system?socket=/run/secret&staging=/srv": "an address of libvirt",
		"openstack:prod?staging=/srv":                                 "an address of openstack",
		"place:rack1?staging=/srv":                                    "",
	} {
		d, err := ParseDestination(text, LocalDefaults{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := d.adminOnlyPart(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// Destinations and AdminOnly find the destinations in each part of a plan.
func TestDestinationsAreFoundEverywhere(t *testing.T) {
	f := mustParse(t, `version: 1
name: p
source: {url: esxi://root@h}
defaults: {to: [dir:/a]}
maps: {datastores: {ssd.1: "kubevirt:/b?kubeconfig=/k"}}
vms:
  - {vm: x, to: [dir:/c, "libvirt:qemu:///system?staging=/d"]}
  - {vm: y, keyFiles: [/e, /f]}
  - z
  - {vm: v, to: "libvirt:qemu:///system?staging=/d"}
`)
	var folders []string
	for _, d := range f.Destinations() {
		folders = append(folders, d.Folder())
	}
	slices.Sort(folders)
	if want := []string{"/a", "/b", "/c", "/d"}; !slices.Equal(folders, want) {
		t.Errorf("got folders %v, want %v", folders, want)
	}
	var paths []string
	for _, k := range f.AdminOnly() {
		paths = append(paths, k.Path)
	}
	if want := []string{"maps.datastores.ssd.1", "vms[0].to[1]", "vms[1].keyFiles", "vms[3].to[0]"}; !slices.Equal(paths, want) {
		t.Errorf("got keys %v, want %v", paths, want)
	}
}

const accessText = `version: 1
credentials:
  vc1:
    url: vcenter://ops@vsphere.local@VC1.example.com
    fingerprint: "AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB"
    passwordFile: /etc/decamp/vc1.password
    roles: [operate]
  prod:
    url: esxi://root@esx9
    fingerprint: "CDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCDCD"
  hosts:
    ssh: {user: root, hostKeys: {esx1: "SHA256:abc"}}
    roles: [operate]
places:
  rack1: {to: "proxmox:https://pve1:8006/pve1?storage=local-lvm&token=/etc/decamp/pve.token", roles: [operate]}
  k8s: {to: "kubevirt:?kubeconfig=/etc/decamp/kube.yaml&namespace=vms", roles: [operate]}
  kvm: {to: "libvirt:qemu:///system?pool=default"}
`

func mustAccess(t *testing.T, text string) *Access {
	t.Helper()
	a, found := ParseAccess([]byte(text))
	if len(found) > 0 {
		t.Fatal(found)
	}
	return a
}

func TestAccessIsReadStrictly(t *testing.T) {
	mustAccess(t, accessText)
	for mistake, change := range map[string][2]string{
		"unknown key":                       {"passwordFile:", "passwordfile:"},
		"requires a fingerprint":            {"    fingerprint: \"CDCD", "    roles: [admin]\n    #\"CDCD"},
		"exactly one of url and ssh":        {"    ssh: {user: root, hostKeys: {esx1: \"SHA256:abc\"}}\n", ""},
		"requires hostKeys":                 {", hostKeys: {esx1: \"SHA256:abc\"}", ""},
		"not the fingerprint of a host key": {"SHA256:abc", "abc"},
		"is not an absolute path":           {"/etc/decamp/vc1.password", "vc1.password"},
		"is not one of operate, admin":      {"roles: [operate]}\n  k8s", "roles: [view]}\n  k8s"},
		"has no parameter \"tokn\"":         {"&token=", "&tokn="},
		"must not have a staging folder":    {"pool=default", "pool=default&staging=/srv"},
		"must not have a folder":            {"kubevirt:?", "kubevirt:/srv?"},
		"requires kubeconfig":               {"kubeconfig=/etc/decamp/kube.yaml&", ""},
		"is not a platform":                 {"libvirt:qemu:///system?pool=default", "dir:/srv"},
		"not a name":                        {"  rack1:", "  \"rack 1\":"},
		"password":                          {"ops@vsphere", "ops:secret@vsphere"},
	} {
		text := strings.Replace(accessText, change[0], change[1], 1)
		if text == accessText {
			t.Errorf("%s: the test text does not change", mistake)
		}
		if _, found := ParseAccess([]byte(text)); len(found) == 0 || !strings.Contains(found.Err().Error(), mistake) && !strings.Contains(found[0].Text, mistake) {
			t.Errorf("%s: got findings %v", mistake, found)
		}
	}
}

func TestAccessFileOfOthersIsRefused(t *testing.T) {
	path := t.TempDir() + "/" + AccessFile
	if a, err := LoadAccess(path); err != nil || len(a.Credentials) > 0 {
		t.Errorf("no file: %v, %v", a, err)
	}
	if err := os.WriteFile(path, []byte(accessText), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := LoadAccess(path); err != nil || len(a.Credentials) != 3 || len(a.Places) != 3 {
		t.Errorf("got %v, %v", a, err)
	}
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadAccess(path); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "chmod go-w") {
		t.Errorf("writable by the group: %v", err)
	}
}

// planWithSource returns a plan with the URL and more keys of the source.
func planWithSource(url, source, to string) string {
	return "version: 1\nname: p\nsource:\n  url: " + url + "\n" + source + "defaults: {to: [\"" + to + "\"]}\nselect: poweredOn\n"
}

func TestPermit(t *testing.T) {
	a := mustAccess(t, accessText)
	const vc, named = "vcenter://ops@vsphere.local@vc1.example.com", "  credentials: {name: vc1}\n"
	for _, v := range []struct {
		name, text string
		role       Role
		kind       fault.Kind // kind of the error; Internal if Permit succeeds
		message    string
	}{
		{"its own source", planWithSource(vc, named, "dir:/srv"), Operate, fault.Internal, ""},
		{"the same port", planWithSource(vc+":443", named, "place:rack1?staging=/srv"), Operate, fault.Internal, ""},
		{"the same fingerprint", planWithSource(vc, named+"  fingerprint: \""+strings.Repeat("ab", 32)+"\"\n", "dir:/srv"), Operate, fault.Internal, ""},
		{"another host", planWithSource("vcenter://ops@vsphere.local@evil.example.com", named, "dir:/srv"), Operate, fault.Denied, "bound to vcenter://ops@vsphere.local@VC1.example.com"},
		{"another host, by admin", planWithSource("vcenter://ops@vsphere.local@evil.example.com", named, "dir:/srv"), Admin, fault.Denied, "evil.example.com"},
		{"another host, local", planWithSource("vcenter://ops@vsphere.local@evil.example.com", named, "dir:/srv"), Local, fault.Denied, "evil.example.com"},
		{"another port", planWithSource(vc+":8443", named, "dir:/srv"), Operate, fault.Denied, "bound to"},
		{"another user", planWithSource("vcenter://root@vc1.example.com", named, "dir:/srv"), Operate, fault.Denied, "bound to"},
		{"another kind", planWithSource("esxi://ops@vc1.example.com", named, "dir:/srv"), Operate, fault.Denied, "bound to"},
		{"another fingerprint", planWithSource(vc, named+"  fingerprint: \""+strings.Repeat("12", 32)+"\"\n", "dir:/srv"), Operate, fault.Conflict, strings.Repeat("12", 32)},
		{"no credentials", planWithSource(vc, "", "dir:/srv"), Operate, fault.Denied, "names no credentials"},
		{"no credentials, by admin", planWithSource(vc, "", "dir:/srv"), Admin, fault.Denied, "names no credentials"},
		{"no credentials, local", planWithSource(vc, "", "dir:/srv"), Local, fault.Internal, ""},
		{"unknown credential", planWithSource(vc, "  credentials: {name: vc2}\n", "dir:/srv"), Admin, fault.Denied, "credential \"vc2\" does not exist"},
		{"unknown credential, local", planWithSource(vc, "  credentials: {name: vc2}\n", "dir:/srv"), Local, fault.Internal, ""},
		{"a credential of admins", planWithSource("esxi://root@esx9", "  credentials: {name: prod}\n", "dir:/srv"), Operate, fault.Denied, "may not use the credential prod"},
		{"a credential of admins, by admin", planWithSource("esxi://root@esx9", "  credentials: {name: prod}\n", "dir:/srv"), Admin, fault.Internal, ""},
		{"a file", planWithSource(vc, "  credentials: {file: /etc/shadow}\n", "dir:/srv"), Operate, fault.Denied, "source.credentials.file in line 5"},
		{"a file, by admin", planWithSource(vc, "  credentials: {file: /etc/shadow}\n", "dir:/srv"), Admin, fault.Internal, ""},
		{"for SSH", planWithSource(vc, named+"  ssh: {credentials: {name: hosts}, enable: true}\n", "dir:/srv"), Operate, fault.Internal, ""},
		{"SSH with a source's", planWithSource(vc, named+"  ssh: {credentials: {name: vc1}}\n", "dir:/srv"), Operate, fault.Invalid, "bound to a source"},
		{"a source with SSH's", planWithSource(vc, "  credentials: {name: hosts}\n", "dir:/srv"), Operate, fault.Invalid, "is for SSH"},
		{"SSH as another user", planWithSource(vc, named+"  ssh: {credentials: {name: hosts}, user: other}\n", "dir:/srv"), Admin, fault.Conflict, "sets some of them itself"},
		{"an unknown place", planWithSource(vc, named, "place:rack2?staging=/srv"), Operate, fault.Denied, "place \"rack2\" does not exist"},
		{"a place of admins", planWithSource(vc, named, "place:kvm?staging=/srv"), Operate, fault.Denied, "may not use the place kvm"},
		{"a place of admins, by admin", planWithSource(vc, named, "place:kvm?staging=/srv"), Admin, fault.Internal, ""},
		{"an address", planWithSource(vc, named, "libvirt:qemu:///system?staging=/srv"), Operate, fault.Denied, "defaults.to[0] (an address of libvirt"},
		{"the role view", planWithSource(vc, named, "dir:/srv"), "view", fault.Denied, "role \"view\""},
		{"no role", planWithSource(vc, named, "dir:/srv"), "", fault.Denied, "role \"\""},
	} {
		err := a.Permit(mustParse(t, v.text), v.role)
		switch {
		case v.kind == fault.Internal && err != nil:
			t.Errorf("%s: %v", v.name, err)
		case v.kind != fault.Internal && (!fault.Is(err, v.kind) || !strings.Contains(err.Error(), v.message) || fault.HintOf(err) == ""):
			t.Errorf("%s: got %v (%s), want %v with %q", v.name, err, fault.HintOf(err), v.kind, v.message)
		}
	}
}

func TestNamedPlacesAreExpanded(t *testing.T) {
	a := mustAccess(t, accessText)
	for text, want := range map[Destination]Destination{
		"dir:/srv/vm":                     "dir:/srv/vm",
		"place:rack1?staging=%2Fsrv%2Fst": "proxmox:https://pve1:8006/pve1?storage=local-lvm&token=/etc/decamp/pve.token&staging=%2Fsrv%2Fst",
		"place:k8s?staging=%2Fsrv%2Fst":   "kubevirt:/srv/st?kubeconfig=/etc/decamp/kube.yaml&namespace=vms",
		"place:kvm?staging=/st":           "libvirt:qemu:///system?pool=default&staging=%2Fst",
	} {
		if got, err := a.Expand(text, Local); got != want || err != nil || got.Folder() != text.Folder() {
			t.Errorf("%s: got %s, %v; want %s", text, got, err, want)
		}
	}
}

// An operator cannot change the address or the parameters of a place, or the folder that was checked, by any text after
// the name of the place.
func FuzzPlace(f *testing.F) {
	for _, seed := range []string{
		"?staging=/srv", "?staging=%2Fsrv%3Fkubeconfig=/x", "?staging=/srv%26token=/x", "?staging=/srv&token=/x", "?staging=/srv%23", "?staging=/srv&staging=/etc",
		"?st%61ging=/srv", "?staging=/srv;token=/x", "?staging=/srv?token=/x", "?staging=/srv/../etc", "?staging=%2Fa%2525%3D%0A", "?token=/x?staging=/srv",
	} {
		f.Add(seed)
	}
	a, found := ParseAccess([]byte(accessText))
	if len(found) > 0 {
		f.Fatal(found)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		for name, place := range a.Places {
			d, err := ParseDestination("place:"+name+rest, LocalDefaults{})
			if err != nil || d.Address() != name {
				continue
			}
			got, err := a.Expand(d, Local)
			if err != nil {
				t.Fatalf("%q: %v", d, err)
			}
			want, parameters := Destination(place.To).parameters(), got.parameters()
			delete(parameters, stageKey)
			address, _, _ := strings.Cut(string(place.To), "?")
			if !reflect.DeepEqual(parameters, want) || got.Folder() != d.Folder() || got.Kind() != KubeVirt && !strings.HasPrefix(string(got), address+"?") || got.Kind() != Destination(place.To).Kind() {
				t.Errorf("%q expands to %q with parameters %v", d, got, parameters)
			}
		}
	})
}

// The example in the documentation is a valid access file.
func TestDocumentedAccessFileIsValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```yaml\n")
	example, _, ok := strings.Cut(after, "```")
	if !ok {
		t.Fatal("docs/server.md has no example")
	}
	if a := mustAccess(t, example); len(a.Credentials) != 2 || len(a.Places) != 2 {
		t.Errorf("the example has %d credentials and %d places", len(a.Credentials), len(a.Places))
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Access](), reflect.TypeFor[Credential](), reflect.TypeFor[SSHLogin](), reflect.TypeFor[NamedPlace]()} {
		for _, k := range keysOf(typ) {
			if !strings.Contains(string(text), "`"+k.name+"`") && k.name != "version" && k.name != "credentials" && k.name != "places" {
				t.Errorf("docs/server.md does not explain %s", k.name)
			}
		}
	}
}
