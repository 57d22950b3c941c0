package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
)

// unpackArchive returns the files of an archive by name.
func unpackArchive(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		text, err := io.ReadAll(r)
		must(t, err)
		files[h.Name] = string(text)
	}
}

// The archive of decamp gather contains no secrets, and no names of hosts, VMs, datastores, folders and users, even if
// errors, journals and logs contain them. With --keep-names it contains the names but no secrets.
func TestGatherOmitsSecretsAndNames(t *testing.T) {
	t.Parallel()
	const vm, odd, broken, store, user, plan = "Payroll-DB01", "Größe 50% / 'alt'", "Lager7", "tresor 9", "ines.operator", "umzug-berlin"
	disk := func(seed uint64) []lab.Disk {
		return []lab.Disk{{Capacity: 4 << 20, Fill: 50, Seed: seed, Datastore: store}}
	}
	r := newRig(t, lab.Config{User: user, Datastores: []lab.Datastore{{Name: "datastore1"}, {Name: store}}, VMs: []lab.VM{
		{Name: vm, Disks: disk(1)}, {Name: odd, Disks: disk(2)}, {Name: broken, Disks: disk(3), PoweredOn: true},
	}}).withFingerprint()
	r.login = "esxi://" + user + "@"
	log := filepath.Join(r.dir, "full.log")
	r.migrate(vm, "--log-file", log, "--verbose").wantExit(0)
	r.migrate(odd, "--log-file", log, "--verbose").wantExit(0)
	r.migrate("none such", "--log-file", log, "--verbose").wantExit(3)
	path := r.writeFile("plan.yaml", "version: 1\nname: "+plan+"\nsource: {url: \""+r.url()+"\", fingerprint: \""+r.lab.Fingerprint()+"\"}\n"+
		"# ask Annegret before\ndefaults: {to: dir:"+r.vmsDir()+"/wave, hooks: {pre: {command: [/bin/true, --token=hook-secret-77]}}}\nvms: ["+broken+"]\n")
	must(t, os.Mkdir(filepath.Join(r.vmsDir(), "wave"), 0o755))
	r.run("plan", "run", path, "--log-file", log).wantExit(6) // the VM is running
	evil := filepath.Join(r.stateDir(), "runs", "evil")
	must(t, os.Mkdir(evil, 0o700))
	must(t, os.Symlink(r.writeFile("outside.json", `{"text":"outside-marker"}`), filepath.Join(evil, "plan.json")))
	must(t, os.Symlink(r.dir, filepath.Join(r.stateDir(), "runs", "linked")))

	archive := filepath.Join(r.dir, "case.tar.gz")
	r.run("gather", "--log", log, "--output", archive).wantExit(0).wantOutput("versions.json", "doctor.json", "logs/1.log", "Written: "+archive)
	r.run("gather", "--output", archive).wantExit(6).wantOutput("exists already") // decamp does not overwrite the archive
	st, err := os.Stat(archive)
	must(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	host, _, err := net.SplitHostPort(r.lab.Addr())
	must(t, err)
	machine, err := os.Hostname()
	must(t, err)
	forbidden := map[string]string{
		"password": secret, "secret of a hook": "hook-secret-77", "comment": "Annegret", "link": "outside-marker",
		"address": host, "host": "localhost.localdomain", "VM": vm, "odd VM": "50%", "part of the odd VM": "alt'", "odd VM, escaped": "50%25", "failed VM": broken,
		"datastore": store, "datastore, escaped": "tresor%209", "user": user, "plan": plan, "folder": r.dir, "fingerprint": r.lab.Fingerprint(),
	}
	if len(machine) > 3 { // a shorter name may be a part of other words
		forbidden["machine"] = machine
	}
	files := unpackArchive(t, archive)
	var all strings.Builder
	for name, text := range files {
		all.WriteString(name + "\n" + text)
	}
	for what, text := range forbidden {
		if i := strings.Index(strings.ToLower(all.String()), strings.ToLower(text)); i >= 0 {
			t.Errorf("%s %q is in the archive: %s", what, text, all.String()[max(0, i-200):min(i+200, all.Len())])
		}
	}
	for _, want := range []string{"versions.json", "doctor.json", "fleet.json", "plans/1.json", "logs/1.log", "left-out.txt"} {
		if files["decamp-support/"+want] == "" {
			t.Errorf("no %s in the archive", want)
		}
	}
	for name, text := range files {
		if strings.HasSuffix(name, ".json") && !json.Valid(bytes.TrimSpace([]byte(text))) {
			t.Errorf("%s is not JSON: %s", name, text)
		}
	}
	// The failed VM has the same pseudonym in the plan and in the log.
	m := regexp.MustCompile(`"VM":"(<vm\d+>)"`).FindStringSubmatch(files["decamp-support/plans/1.json"])
	if m == nil || !strings.Contains(all.String(), "migrate "+m[1]) && !strings.Contains(files["decamp-support/plans/1.json"], `"name":"`+m[1]+`"`) {
		t.Errorf("the VM of the plan has no pseudonym, or several: %v in %s", m, files["decamp-support/plans/1.json"])
	}

	kept := filepath.Join(r.dir, "kept.tar.gz")
	r.run("gather", "--log", log, "--output", kept, "--keep-names").wantExit(0)
	all.Reset()
	for _, text := range unpackArchive(t, kept) {
		all.WriteString(text)
	}
	for _, want := range []string{vm, broken, user, host} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("--keep-names does not keep %s", want)
		}
	}
	for _, text := range []string{secret, "hook-secret-77", "outside-marker"} {
		if strings.Contains(all.String(), text) {
			t.Errorf("--keep-names keeps the secret %q", text)
		}
	}
}
