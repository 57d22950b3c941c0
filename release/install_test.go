//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"aead.dev/minisign"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// These tests build the real release and install it in a clean Debian without a network. They need root.

// previous is the version that the current packages replace.
const previous = "0.0.9"

// builtRelease is the release of this tree, and the same tree as the previous version.
type builtRelease struct {
	*release
	in     *inputs // compiled programs
	before string  // folder with the artefacts of the previous version
}

// built is the release that all tests install.
var built = sync.OnceValues(func() (*builtRelease, error) {
	ctx := context.Background()
	r, err := openRelease(ctx, "..", filepath.Join(sharedFolder, "dist"), "", io.Discard)
	if err != nil {
		return nil, err
	}
	b := &builtRelease{release: r, before: filepath.Join(sharedFolder, "before")}
	binaries := filepath.Join(sharedFolder, "binaries")
	if b.in, err = r.buildInputs(ctx, binaries); err != nil {
		return nil, err
	}
	if err := r.writeArtefacts(b.in); err != nil {
		return nil, err
	}
	old := *r
	old.version, old.out, old.tagged = previous, b.before, false
	in := *b.in
	in.binaries = map[string]map[string][]byte{}
	for arch, content := range b.in.binaries {
		in.binaries[arch] = maps.Clone(content)
	}
	binary := filepath.Join(binaries, previous)
	if err := old.buildBinary(ctx, "decamp", runtime.GOARCH, binary); err != nil {
		return nil, err
	}
	if in.binaries[runtime.GOARCH]["decamp"], err = os.ReadFile(binary); err != nil {
		return nil, err
	}
	return b, old.writeArtefacts(&in)
})

func requireRelease(t *testing.T) *builtRelease {
	t.Helper()
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newDebian returns the folder of a clean Debian with systemd's programs, in which systemd does not run.
func newDebian(t *testing.T) string {
	t.Helper()
	return unpackDebian(t, "../build/install-debian.tar", "bookworm", "systemd")
}

// unpackDebian returns the folder of a Debian with these packages and their dependencies. Its archive is built once. An
// index of the mirror may be expired.
func unpackDebian(t *testing.T, archive, suite, packages string) string {
	t.Helper()
	if _, err := os.Stat(archive); err != nil {
		if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
			t.Fatal(err)
		}
		runTool(t, "mmdebstrap", "--quiet", "--variant=minbase", "--include="+packages, "--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Check-Valid-Until \"false\"", "--format=tar", suite, archive+".new")
		if err := os.Rename(archive+".new", archive); err != nil {
			t.Fatal(err)
		}
	}
	root := t.TempDir()
	runTool(t, "tar", "-C", root, "-xf", archive, "--exclude=./dev/*")
	return root
}

// runIsolated runs a shell script in new namespaces without a network, and returns its output. $ROOT is the folder
// with /proc and /dev mounted; chroot "$ROOT" enters it. All processes end with the script.
func runIsolated(t *testing.T, root, script string) string {
	t.Helper()
	const mounts = `set -e
ip link set lo up
mkdir -p "$ROOT/proc" "$ROOT/dev"
mount -t proc proc "$ROOT/proc"
mount --bind /dev "$ROOT/dev"
`
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", mounts+script)
	cmd.Env = []string{"ROOT=" + root, "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, script, out)
	}
	return string(out)
}

// copyInto copies files into the folder /root of a root, and returns their paths there.
func copyInto(t *testing.T, root string, files ...string) string {
	t.Helper()
	var paths []string
	for _, f := range files {
		runTool(t, "cp", f, filepath.Join(root, "root"))
		paths = append(paths, "/root/"+filepath.Base(f))
	}
	return strings.Join(paths, " ")
}

// expectText fails the test if a text does not contain all of the given texts.
func expectText(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

// hasFile reports whether a root contains a file.
func hasFile(root, path string) bool {
	_, err := os.Lstat(filepath.Join(root, path))
	return err == nil
}

// upgradeScript upgrades decamp with the command $UPGRADE while a server runs. The process must survive the upgrade with
// its old program.
const upgradeScript = `
chroot "$ROOT" decamp version
mkdir -p "$ROOT/var/lib/decamp"
echo record >"$ROOT/var/lib/decamp/state-of-a-run"
chroot "$ROOT" decamp serve --state /tmp/state --listen 127.0.0.1:8470 --log-file /tmp/serve.log >"$ROOT/tmp/serve.out" 2>&1 &
server=$!
tries=0
until ls "$ROOT"/tmp/state/* >/dev/null 2>&1; do
	kill -0 $server
	tries=$((tries + 1)); [ $tries -lt 600 ]
	sleep 0.1
done
eval "$UPGRADE"
kill -0 $server
readlink "$ROOT/proc/$server/exe"
chroot "$ROOT" decamp version
`

// recordSystemctl replaces systemctl in a root with a script that records its arguments and lists one running unit. The
// scripts of the packages therefore find a running systemd. It returns a function that reads the record.
func recordSystemctl(t *testing.T, root string) func() string {
	t.Helper()
	const script = "#!/bin/sh\necho \"$*\" >>/systemctl.log\n[ \"$1\" != list-units ] || echo 'decamp-server.service loaded active running decamp server'\n"
	program := filepath.Join(root, "usr/local/bin/systemctl")
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755), os.WriteFile(program, []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	return func() string {
		text, err := os.ReadFile(filepath.Join(root, "systemctl.log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// stopped matches a record of a unit that was stopped, started or restarted.
var stopped = regexp.MustCompile(`(?m)(^| )(re)?(start|stop)|--now`)

func TestDebianPackage(t *testing.T) {
	b, root := requireRelease(t), newDebian(t)
	record := recordSystemctl(t, root)
	old := copyPackage(t, root, b.before, "decamp", previous)
	current := copyPackage(t, root, b.out, "decamp", b.version)
	out := runIsolated(t, root, `chroot "$ROOT" dpkg --install `+old+`; UPGRADE='chroot "$ROOT" dpkg --install `+current+`'`+upgradeScript)
	expectText(t, out, "decamp "+previous+" (", "decamp: running processes continue with the previous version.", "/usr/bin/decamp (deleted)", "decamp "+b.version+" (")
	expectText(t, out, "run: systemctl restart decamp-server.service")
	if calls := record(); stopped.MatchString(calls) || !strings.Contains(calls, "daemon-reload") {
		t.Errorf("installation and upgrade called systemctl:\n%s", calls)
	}
	checkUnits(t, b, root)

	out = runIsolated(t, root, `chroot "$ROOT" dpkg --remove decamp`)
	expectText(t, out, "the state in /var/lib/decamp is kept")
	expectText(t, record(), "stop decamp*\n")
	out = runIsolated(t, root, `chroot "$ROOT" dpkg --purge decamp; chroot "$ROOT" dpkg --audit`)
	checkRemoved(t, root)
}

// checkRemoved fails the test if a removed package has left files, or if the state of a run is lost.
func checkRemoved(t *testing.T, root string) {
	t.Helper()
	if !hasFile(root, "/var/lib/decamp/state-of-a-run") {
		t.Error("the state of a run is lost")
	}
	for _, path := range []string{"/usr/bin/decamp", "/usr/share/decamp", "/usr/share/bash-completion/completions/decamp", "/usr/share/man/man1/decamp.1.gz"} {
		if hasFile(root, path) {
			t.Errorf("%s still exists", path)
		}
	}
	left := runTool(t, "find", filepath.Join(root, "usr/lib/systemd"), filepath.Join(root, "usr/lib/sysusers.d"), filepath.Join(root, "usr/lib/tmpfiles.d"), "-name", "decamp*")
	if left != "" {
		t.Errorf("remaining files for systemd: %s", left)
	}
}

// checkUnits fails the test if an installed unit is not valid or if a unit of packaging/systemd is not installed.
func checkUnits(t *testing.T, b *builtRelease, root string) {
	t.Helper()
	files, err := b.readPackagingFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !hasFile(root, f.installed) {
			t.Errorf("%s is not installed", f.installed)
		}
	}
	units, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/decamp*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(units) == 0 {
		if _, err := os.Stat("../packaging/systemd"); err == nil {
			t.Error("no unit is installed")
		}
		return
	}
	var names []string
	for _, unit := range units {
		names = append(names, strings.TrimPrefix(unit, root))
	}
	if out := runIsolated(t, root, `chroot "$ROOT" systemd-analyze verify --man=no `+strings.Join(names, " ")+` 2>&1`); strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
}

func TestRPMPackage(t *testing.T) {
	b, root := requireRelease(t), newDebian(t)
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	rpm := `rpm --root "$ROOT" --dbpath /var/lib/rpm --force-debian `
	old := filepath.Join(b.before, "decamp-"+previous+"-1."+arch+".rpm")
	current := filepath.Join(b.out, "decamp-"+b.version+"-1."+arch+".rpm")
	out := runIsolated(t, root, rpm+`--install `+old+`; UPGRADE='`+rpm+`--upgrade `+current+`'`+upgradeScript)
	expectText(t, out, "decamp "+previous+" (", "decamp: running processes continue with the previous version.", "/usr/bin/decamp (deleted)", "decamp "+b.version+" (")
	if !hasFile(root, "/usr/share/zsh/site-functions/_decamp") {
		t.Error("the completion of zsh is not installed")
	}
	checkUnits(t, b, root)
	out = runIsolated(t, root, rpm+`--verify decamp; `+rpm+`--erase decamp`)
	expectText(t, out, "the state in /var/lib/decamp is kept")
	checkRemoved(t, root)
}

// startLab starts the emulator, and sets the shell variables password, its file, and fingerprint.
const startLab = `
chroot "$ROOT" decamp-lab >"$ROOT/tmp/lab.out" 2>&1 &
lab=$!
tries=0
until grep -q 'Try, in another terminal' "$ROOT/tmp/lab.out"; do
	kill -0 $lab
	tries=$((tries + 1)); [ $tries -lt 600 ]
	sleep 0.1
done
password=$(sed -n 's/^ *password *in //p' "$ROOT/tmp/lab.out")
fingerprint=$(sed -n 's/^ *SHA-256 *//p' "$ROOT/tmp/lab.out")
`

// tryScript moves a VM with three commands: it installs the packages, starts the emulator, and migrates.
const tryScript = `
chroot "$ROOT" dpkg --install $PACKAGES` + startLab + `
chroot "$ROOT" decamp migrate esxi://root@127.0.0.1:8443 web01 --to dir:/srv --password-file "$password" --fingerprint "$fingerprint"
`

// The package of the plugin installs it where the nbdkit of Debian finds it: the oldest that is supported, and the
// newest, which has all filters that virt-v2v uses. nbdkit copies a disk of the emulator.
func TestPackageOfThePlugin(t *testing.T) {
	b := requireRelease(t)
	var packages []string
	for _, name := range []string{"decamp", "decamp-lab", "nbdkit-plugin-nfc"} {
		packages = append(packages, filepath.Join(b.out, name+"_"+b.version+"-1_"+runtime.GOARCH+".deb"))
	}
	for suite, filters := range map[string]string{"bookworm": "--filter=cow --filter=retry", "sid": "--filter=cow --filter=count --filter=retry"} {
		t.Run(suite, func(t *testing.T) {
			root := unpackDebian(t, "../build/install-nbdkit-"+suite+".tar", suite, "nbdkit,libnbd-bin")
			out := runIsolated(t, root, `chroot "$ROOT" dpkg --install `+copyInto(t, root, packages...)+`
chroot "$ROOT" nbdkit nfc --dump-plugin`+startLab+`
host="esxi://root@127.0.0.1:8443 web01 --password-file $password --fingerprint $fingerprint"
ref=$(chroot "$ROOT" decamp ls $host | sed -n 's/^ *Reference *//p')
chroot "$ROOT" nbdkit --version
chroot "$ROOT" nbdkit --readonly --threads 16 --unix - `+filters+` nfc server=127.0.0.1 port=8443 insecure=true thumbprint="$fingerprint" user=root password=+"$password" \
	vm=moref="$ref" file='[datastore1] web01/web01.vmdk' cow-block-size=4096 --run 'nbdcopy "$uri" /srv/copy.raw'
chroot "$ROOT" decamp migrate $host --to dir:/srv --power-off
cmp "$ROOT/srv/copy.raw" "$ROOT"/srv/web01/*-disk0.raw && echo same bytes
chroot "$ROOT" dpkg --purge nbdkit-plugin-nfc
`)
			t.Log(regexp.MustCompile(`nbdkit [0-9.]+`).FindString(out))
			expectText(t, out, "nfc_transports=nfc,https", "version="+b.version, "same bytes")
			if left := runTool(t, "find", root, "-name", "*nfc-plugin*"); left != "" {
				t.Errorf("remaining files of the package: %s", left)
			}
		})
	}
}

// TestThreeCommandsMoveAVM prints the figure of docs/installing.md.
func TestThreeCommandsMoveAVM(t *testing.T) {
	b, root := requireRelease(t), newDebian(t)
	packages := copyPackage(t, root, b.out, "decamp", b.version) + " " + copyPackage(t, root, b.out, "decamp-lab", b.version)
	out := runIsolated(t, root, `begin=$(date +%s%N); PACKAGES='`+packages+`'`+tryScript+`
echo "milliseconds: $((($(date +%s%N) - begin) / 1000000))"
chroot "$ROOT" decamp verify /srv/web01`)
	m := regexp.MustCompile(`milliseconds: (\d+)`).FindStringSubmatch(out)
	if m == nil || !hasFile(root, "/srv/web01/domain.xml") {
		t.Fatalf("the VM was not moved:\n%s", out)
	}
	milliseconds, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("from a clean Debian to a moved VM: %.1f s, 3 commands", float64(milliseconds)/1000)
	if milliseconds > 60_000 {
		t.Errorf("more than 60 s")
	}
}

// unpackImage unpacks the image of a program for this machine into the folder rootfs of a bundle, which it returns with
// the configuration of the image.
func unpackImage(t *testing.T, b *builtRelease, program string) (string, v1.Config) {
	t.Helper()
	archive := filepath.Join(b.out, program+"-"+b.version+"-oci.tar")
	expectText(t, runTool(t, "skopeo", "inspect", "--override-os", "linux", "--override-arch", "arm64", "oci-archive:"+archive), `"Architecture": "arm64"`)
	folder := t.TempDir()
	runTool(t, "tar", "-C", folder, "-xf", archive)
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err = index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		if !match.Platforms(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})(m) {
			continue
		}
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		bundle := t.TempDir()
		for _, folder := range []string{filepath.Join(bundle, "rootfs"), bundle, filepath.Dir(bundle)} { // the user of the image enters them
			if err := errors.Join(os.MkdirAll(folder, 0o755), os.Chmod(folder, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		tar := exec.CommandContext(t.Context(), "tar", "-C", filepath.Join(bundle, "rootfs"), "--same-owner", "--same-permissions", "-xf", "-")
		tar.Stdin = mutate.Extract(image)
		if out, err := tar.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return bundle, config.Config
	}
	t.Fatalf("no image for %s", runtime.GOARCH)
	return "", v1.Config{}
}

// writeContainer writes the configuration with which runc runs a command in a bundle: as the user of the image, in the
// network of the caller.
func writeContainer(t *testing.T, bundle string, c v1.Config, args string) {
	t.Helper()
	path := filepath.Join(bundle, "config.json")
	if err := os.RemoveAll(path); err != nil { // runc does not replace it
		t.Fatal(err)
	}
	runTool(t, "runc", "spec", "--bundle", bundle)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	var user, group int
	if _, err := fmt.Sscanf(c.User, "%d:%d", &user, &group); err != nil {
		t.Fatal(err)
	}
	process, linux := spec["process"].(map[string]any), spec["linux"].(map[string]any)
	process["args"], process["env"], process["cwd"] = append(slices.Clone(c.Entrypoint), strings.Fields(args)...), c.Env, c.WorkingDir
	process["terminal"], process["user"] = false, map[string]int{"uid": user, "gid": group}
	linux["namespaces"] = slices.DeleteFunc(linux["namespaces"].([]any), func(n any) bool { return n.(map[string]any)["type"] == "network" })
	spec["root"].(map[string]any)["readonly"] = false
	if text, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The images contain all that a migration needs, without root.
func TestImagesMoveAVM(t *testing.T) {
	b := requireRelease(t)
	lab, labConfig := unpackImage(t, b, "decamp-lab")
	bundle, config := unpackImage(t, b, "decamp")
	name := fmt.Sprintf("decamp-test-%d", os.Getpid())
	t.Cleanup(func() {
		for _, container := range []string{name + "-lab", name} {
			_ = exec.Command("runc", "delete", "--force", container).Run() // fails if the container is already removed
		}
	})
	writeContainer(t, lab, labConfig, "")
	const address, place = "esxi://root@127.0.0.1:8443", "/var/lib/decamp/web01"
	writeContainer(t, bundle, config, "migrate "+address+" web01 --to dir:/var/lib/decamp --password-file /tmp/password --fingerprint FINGERPRINT")
	script := `set -e
ip link set lo up
runc run --bundle "$LAB" "$NAME-lab" >"$LAB/out" 2>&1 </dev/null &
tries=0
until grep -q 'Try, in another terminal' "$LAB/out"; do
	tries=$((tries + 1)); [ $tries -lt 600 ]
	sleep 0.1
done
password=$(sed -n 's/^ *password *in //p' "$LAB/out")
cp "$LAB/rootfs$password" "$BUNDLE/rootfs/tmp/password"
chown "$OWNER" "$BUNDLE/rootfs/tmp/password"
sed -i "s/FINGERPRINT/$(sed -n 's/^ *SHA-256 *//p' "$LAB/out")/" "$BUNDLE/config.json"
runc run --bundle "$BUNDLE" "$NAME" </dev/null
runc kill "$NAME-lab" KILL
wait || true
`
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c", script)
	cmd.Env = []string{"LAB=" + lab, "BUNDLE=" + bundle, "NAME=" + name, "OWNER=" + config.User, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil || !hasFile(filepath.Join(bundle, "rootfs"), place+"/domain.xml") {
		t.Fatalf("the VM was not moved: %v\n%s", err, out)
	}
	writeContainer(t, bundle, config, "verify "+place)
	runTool(t, "runc", "run", "--bundle", bundle, name)
}

// A new build of a copy of the tree at another path results in the same artefacts.
func TestReleaseIsReproducible(t *testing.T) {
	b := requireRelease(t)
	root := filepath.Join(t.TempDir(), "a", "longer", "path")
	for name := range strings.SplitSeq(runTool(t, "git", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		if name == "" || !hasFile("..", name) {
			continue
		}
		to := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		runTool(t, "cp", "-a", filepath.Join("..", name), to)
	}
	// scripts/clients.sh lists the files by git, and uses the tools that scripts/setup.sh installs.
	runTool(t, "git", "init", "-q", root)
	tools, err := filepath.Abs("../build/clients")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(root, "build"), 0o755), os.Symlink(tools, filepath.Join(root, "build", "clients"))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", strconv.FormatInt(b.date.Unix(), 10))
	t.Setenv("GOCACHE", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	out := filepath.Join(root, "dist")
	if err := run(t.Context(), root, out, "", io.Discard); err != nil {
		t.Fatal(err)
	}
	first, second := readFolder(t, b.out), readFolder(t, out)
	if !slices.Equal(slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second))) {
		t.Errorf("artefacts %q and %q", slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second)))
	}
	for name, content := range first {
		if string(second[name]) != string(content) {
			t.Errorf("%s differs", name)
		}
	}
}

// scripts/audit.sh allows every licence of the modules.
func TestLicencesAreAllowed(t *testing.T) {
	b := requireRelease(t)
	script, err := os.ReadFile("../scripts/audit.sh")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^allowed=(.*)$`).FindSubmatch(script)
	if m == nil {
		t.Fatal("scripts/audit.sh has no list of licences")
	}
	allowed := strings.Split(string(m[1]), ",")
	for program, modules := range b.in.modules {
		if len(modules) < 5 {
			t.Errorf("%s has only %d modules", program, len(modules))
		}
		for _, m := range modules {
			for _, l := range m.licences {
				if !slices.Contains(allowed, l) {
					t.Errorf("%s: %s has the licence %s, which scripts/audit.sh does not allow", program, m.path, l)
				}
			}
		}
	}
}

// A key with a password signs, and a wrong password is an error. Each use of the password costs seconds by design.
func TestKeyWithPassword(t *testing.T) {
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := minisign.EncryptKey("secret", private)
	if err != nil {
		t.Fatal(err)
	}
	r := newRelease(t)
	t.Setenv(keyVariable, string(key))
	t.Setenv(passwordVariable, "wrong")
	if err := (&artefacts{release: r}).writeSums(); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("signing with a wrong password: got %v, want an error that does not contain it", err)
	}
	t.Setenv(passwordVariable, "secret")
	if err := (&artefacts{release: r}).writeSums(); err != nil {
		t.Fatal(err)
	}
	runTool(t, "minisign", "-Vm", filepath.Join(r.out, sumsName), "-P", public.String())
}
