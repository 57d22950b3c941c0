package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"aead.dev/minisign"
	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// prebuilt returns inputs that need no compilation.
func prebuilt() *inputs {
	in := &inputs{clients: map[string][]byte{"decamp_client-1.2.3-py3-none-any.whl": []byte("wheel"), "decamp-decamp-1.2.3.tar.gz": []byte("collection")},
		binaries: map[string]map[string][]byte{}, modules: map[string][]module{},
		completions: map[string][]byte{"bash": []byte("bash words\n"), "zsh": []byte("zsh words\n"), "fish": []byte("fish words\n")},
	}
	for _, arch := range architectures {
		in.binaries[arch] = map[string][]byte{}
		for _, p := range programs {
			in.binaries[arch][p.name] = []byte("program " + p.name + " for " + arch)
			in.binaries[arch][copier] = []byte("copies for " + arch)
			in.modules[p.name] = []module{
				{"example.com/one", "v1.2.0", "h1:dCfM4Sx9gBC0uxRBdlFwJAS1zhFJoWYLUfKfKDRjYBQ=", []string{"MIT"}, []licence{{"LICENSE", []byte("text of one")}}},
				{"std", "go1.26.8", "", []string{"BSD-3-Clause"}, []licence{{"LICENSE", []byte("text of std")}, {"PATENTS", []byte("grant of std")}}},
			}
		}
	}
	return in
}

// sharedFolder contains the releases that several tests read.
var sharedFolder string

func TestMain(m *testing.M) {
	os.Unsetenv(keyVariable)
	var err error
	if sharedFolder, err = os.MkdirTemp("", "decamp-release-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(sharedFolder)
	os.Exit(code)
}

// sharedRelease is a release that several tests read.
var sharedRelease = sync.OnceValues(func() (*release, error) {
	r := &release{root: "..", out: filepath.Join(sharedFolder, "prebuilt"), version: "1.2.3", date: time.Unix(1795838957, 0).UTC(), log: io.Discard}
	return r, r.writeArtefacts(prebuilt())
})

// readRelease returns a release of version 1.2.3 and its artefacts by name. The test must not change it.
func readRelease(t *testing.T) (*release, map[string][]byte) {
	t.Helper()
	r, err := sharedRelease()
	if err != nil {
		t.Fatal(err)
	}
	return r, readFolder(t, r.out)
}

// newRelease returns a release of this repository as version 1.2.3, in a new folder.
func newRelease(t *testing.T) *release {
	t.Helper()
	return &release{root: "..", out: t.TempDir(), version: "1.2.3", date: time.Unix(1795838957, 0).UTC(), log: t.Output()}
}

// writeRelease writes the artefacts of a release from prebuilt programs, and returns them by name.
func writeRelease(t *testing.T, r *release) map[string][]byte {
	t.Helper()
	if err := r.writeArtefacts(prebuilt()); err != nil {
		t.Fatal(err)
	}
	return readFolder(t, r.out)
}

// readFolder returns the files of a folder by name.
func readFolder(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(folder, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// runTool runs another program and returns its output.
func runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestArtefactsDependOnInputsOnly(t *testing.T) {
	_, first := readRelease(t)
	names := slices.Sorted(maps.Keys(first))
	want := []string{"RELEASE-NOTES.md", "SHA256SUMS", "decamp_client-1.2.3-py3-none-any.whl", "decamp-decamp-1.2.3.tar.gz"}
	for _, p := range []string{"decamp", "decamp-lab", "nbdkit-plugin-nfc"} {
		want = append(want, p+"-1.2.3-linux-amd64.tar.gz", p+"-1.2.3-linux-arm64.tar.gz", p+"_1.2.3-1_amd64.deb", p+"_1.2.3-1_arm64.deb",
			p+"-1.2.3-1.x86_64.rpm", p+"-1.2.3-1.aarch64.rpm", p+"-1.2.3-oci.tar", p+"-1.2.3.cdx.json")
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("artefacts %q, want %q", names, want)
	}
	for line := range strings.Lines(string(first["SHA256SUMS"])) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256(first[name])); got != sum {
			t.Errorf("%s has the sum %s, listed is %s", name, got, sum)
		}
	}
	if n := bytes.Count(first["SHA256SUMS"], []byte("\n")); n != len(want)-1 {
		t.Errorf("%d sums of %d artefacts", n, len(want)-1)
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TZ", "Asia/Tokyo")
	for name, content := range writeRelease(t, newRelease(t)) {
		if !bytes.Equal(content, first[name]) {
			t.Errorf("%s differs in another folder", name)
		}
	}
}

func TestArtefactsOfAnEarlierReleaseAreRemoved(t *testing.T) {
	r := newRelease(t)
	other := filepath.Join(r.out, "notes of the user")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"SHA256SUMS": "abc  decamp.deb\nabc  ../decamp.rpm\nabc  gone\n", "SHA256SUMS.minisig": "", "decamp.deb": "", "decamp.rpm": ""} {
		if err := os.WriteFile(filepath.Join(r.out, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.removeArtefacts(); err != nil {
		t.Fatal(err)
	}
	if left := slices.Collect(maps.Keys(readFolder(t, r.out))); !slices.Equal(left, []string{filepath.Base(other)}) {
		t.Errorf("the folder contains %q", left)
	}
}

// readTar returns the members of a tar archive by name.
func readTar(t *testing.T, content io.Reader) map[string]*tar.Header {
	t.Helper()
	members := map[string]*tar.Header{}
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return members
		} else if err != nil {
			t.Fatal(err)
		}
		members[h.Name] = h
	}
}

func TestArchive(t *testing.T) {
	r, files := readRelease(t)
	uncompressed, err := gzip.NewReader(bytes.NewReader(files["decamp-1.2.3-linux-amd64.tar.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	members := readTar(t, uncompressed)
	for name, mode := range map[string]int64{
		"decamp": 0o755, "LICENSE": 0o644, "NOTICE": 0o644, "README.md": 0o644, "THIRD-PARTY-LICENSES.txt": 0o644, "man/man1/decamp-plan-run.1": 0o644,
		"man/man7/decamp-warm.7": 0o644, "completions/_decamp": 0o644, "completions/decamp.bash": 0o644, "completions/decamp.fish": 0o644, "privileges/vsphere.sh": 0o755,
	} {
		h := members["decamp-1.2.3-linux-amd64/"+name]
		if h == nil || h.Mode != mode || !h.ModTime.Equal(r.date) || h.Uid != 0 {
			t.Errorf("%s: header %+v", name, h)
		}
	}
}

func TestPackages(t *testing.T) {
	r, _ := readRelease(t)
	paths := []string{
		"/usr/bin/decamp", "/usr/share/man/man1/decamp-migrate.1.gz", "/usr/share/bash-completion/completions/decamp",
		"/usr/share/fish/vendor_completions.d/decamp.fish", "/usr/share/doc/decamp/copyright", "/usr/share/doc/decamp/THIRD-PARTY-LICENSES.txt", "/usr/share/decamp/privileges/vsphere.sh",
	}
	deb := filepath.Join(r.out, "decamp_1.2.3-1_arm64.deb")
	info, list := runTool(t, "dpkg-deb", "--info", deb), runTool(t, "dpkg-deb", "--contents", deb)
	for _, want := range []string{"Package: decamp\n", "Version: 1.2.3-1\n", "Architecture: arm64\n", "postinst", "prerm", "postrm"} {
		if !strings.Contains(info, want) {
			t.Errorf("no %q in %s", want, info)
		}
	}
	for _, path := range append(paths, "/usr/share/zsh/vendor-completions/_decamp") {
		if !strings.Contains(list, " ."+path+"\n") {
			t.Errorf("the deb does not contain %s", path)
		}
	}
	rpm := filepath.Join(r.out, "decamp-1.2.3-1.aarch64.rpm")
	list = runTool(t, "rpm", "--query", "--list", "--package", rpm)
	for _, path := range append(paths, "/usr/share/zsh/site-functions/_decamp") {
		if !strings.Contains(list, path+"\n") {
			t.Errorf("the rpm does not contain %s", path)
		}
	}
	if got := runTool(t, "rpm", "--query", "--queryformat", "%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{BUILDTIME} %{LICENSE}", "--package", rpm); got != "decamp 1.2.3 1 aarch64 1795838957 Apache-2.0" {
		t.Errorf("the rpm is %s", got)
	}
	if scripts := runTool(t, "rpm", "--query", "--scripts", "--package", rpm); strings.Count(scripts, "scriptlet") != 3 {
		t.Errorf("scripts %s", scripts)
	}
	if list := runTool(t, "dpkg-deb", "--contents", filepath.Join(r.out, "decamp-lab_1.2.3-1_amd64.deb")); !strings.Contains(list, " ./usr/bin/decamp-lab\n") || strings.Contains(list, "systemd") {
		t.Errorf("decamp-lab contains %s", list)
	}
}

// The program of the plugin's image is static, and the file that it copies can be read by every user.
func TestCopierCopiesThePlugin(t *testing.T) {
	r, _ := readRelease(t)
	folder := t.TempDir()
	binary, from, to := filepath.Join(folder, "copier"), filepath.Join(folder, pluginFile), filepath.Join(folder, "opt")
	if err := r.buildCopier(t.Context(), runtime.GOARCH, binary); err != nil {
		t.Fatal(err)
	}
	if f, err := elf.Open(binary); err != nil || f.Section(".interp") != nil {
		t.Errorf("the program is not static: %v", err)
	}
	if err := os.WriteFile(from, []byte("plugin"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it replaces the file
		runTool(t, binary, from, to)
	}
	copied := readFolder(t, to)
	if st, err := os.Stat(filepath.Join(to, pluginFile)); err != nil || st.Mode().Perm() != 0o755 || string(copied[pluginFile]) != "plugin" || len(copied) != 1 {
		t.Errorf("copied content %q, error %v", copied, err)
	}
	if out, err := exec.Command(binary, from, filepath.Join(folder, "missing")).CombinedOutput(); err == nil || !strings.Contains(string(out), "missing") {
		t.Errorf("%s, %v", out, err)
	}
}

// The packages of the plugin install it where nbdkit searches, and require nbdkit and libc.
func TestPackagesOfThePlugin(t *testing.T) {
	r, _ := readRelease(t)
	for arch, name := range map[string][2]string{"amd64": {"x86_64-linux-gnu", "x86_64"}, "arm64": {"aarch64-linux-gnu", "aarch64"}} {
		deb := filepath.Join(r.out, "nbdkit-plugin-nfc_1.2.3-1_"+arch+".deb")
		if list := runTool(t, "dpkg-deb", "--contents", deb); !strings.Contains(list, " ./usr/lib/"+name[0]+"/nbdkit/plugins/nbdkit-nfc-plugin.so\n") {
			t.Errorf("the deb contains %s", list)
		}
		if got := runTool(t, "dpkg-deb", "--field", deb, "Depends"); got != "nbdkit (>= 1.32), libc6 (>= 2.34)\n" {
			t.Errorf("the deb depends on %s", got)
		}
		rpm := filepath.Join(r.out, "nbdkit-plugin-nfc-1.2.3-1."+name[1]+".rpm")
		if list := runTool(t, "rpm", "--query", "--list", "--package", rpm); !strings.Contains(list, "/usr/lib64/nbdkit/plugins/nbdkit-nfc-plugin.so\n") {
			t.Errorf("the rpm contains %s", list)
		}
		if got := runTool(t, "rpm", "--query", "--requires", "--package", rpm); !strings.Contains(got, "nbdkit-server >= 1.32\n") || !strings.Contains(got, "libc.so.6(GLIBC_2.34)(64bit)\n") {
			t.Errorf("the rpm requires %s", got)
		}
	}
}

func TestPackagingFilesHaveFolders(t *testing.T) {
	for relative, want := range map[string]string{
		"systemd/decamp-server.service":  "/usr/lib/systemd/system/decamp-server.service",
		"systemd/decamp-worker@.service": "/usr/lib/systemd/system/decamp-worker@.service",
		"systemd/decamp.target":          "/usr/lib/systemd/system/decamp.target",
		"systemd/decamp-server.socket":   "/usr/lib/systemd/system/decamp-server.socket",
		"systemd/decamp.sysusers.conf":   "/usr/lib/sysusers.d/decamp.conf",
		"systemd/decamp.tmpfiles.conf":   "/usr/lib/tmpfiles.d/decamp.conf",
		"systemd/README.md":              "",
		"systemd/other.conf":             "",
		"privileges/vsphere.sh":          "/usr/share/decamp/privileges/vsphere.sh",
	} {
		if got, err := installedPath(relative); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", relative, got, err, want)
		}
	}
}

// Every file of packaging except the scripts of the packages is in the packages.
func TestPackagingFilesAreCollected(t *testing.T) {
	r := newRelease(t)
	files, err := r.readPackagingFiles()
	if err != nil {
		t.Fatal(err)
	}
	listed := runTool(t, "git", "-C", "..", "ls-files", "packaging/*", ":!packaging/scripts")
	if n := strings.Count(listed, "\n"); n != len(files) || n < 4 {
		t.Errorf("%d files of %d:\n%s", len(files), n, listed)
	}
}

func TestImages(t *testing.T) {
	r, _ := readRelease(t)
	for _, p := range programs {
		folder := t.TempDir()
		runTool(t, "tar", "-C", folder, "-xf", filepath.Join(r.out, p.name+"-1.2.3-oci.tar"))
		top, err := layout.ImageIndexFromPath(folder)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := top.IndexManifest()
		if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
			t.Fatalf("manifest %+v, error %v", manifest, err)
		}
		index, err := top.ImageIndex(manifest.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		if manifest, err = index.IndexManifest(); err != nil || len(manifest.Manifests) != 2 {
			t.Fatalf("manifest %+v, error %v", manifest, err)
		}
		for i, arch := range architectures {
			if got := manifest.Manifests[i].Platform; got == nil || got.String() != "linux/"+arch {
				t.Errorf("platform %v, want %s", got, arch)
			}
			image, err := index.Image(manifest.Manifests[i].Digest)
			if err != nil {
				t.Fatal(err)
			}
			compareImage(t, image, p, arch)
		}
	}
}

// compareImage fails the test if the configuration or the files of an image differ from those of a release.
func compareImage(t *testing.T, image v1.Image, p program, arch string) {
	t.Helper()
	entrypoint, extra := []string{"/usr/bin/" + p.name}, "tmp"
	if p.plugin {
		entrypoint, extra = []string{"/usr/bin/copyplugin", "/usr/share/nbdkit-plugin-nfc/nbdkit-nfc-plugin.so", "/opt"}, "usr/share/nbdkit-plugin-nfc/nbdkit-nfc-plugin.so"
	}
	c, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Architecture != arch || c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, entrypoint) || c.Created.Unix() != 1795838957 {
		t.Errorf("configuration %+v", c)
	}
	content := mutate.Extract(image)
	defer content.Close()
	members := readTar(t, content)
	for name, want := range map[string][2]int64{
		entrypoint[0][1:]: {0o755, 0}, "var/lib/decamp": {0o700, 65532}, "tmp": {0o1777, 0}, "etc/passwd": {0o644, 0}, "usr/share/doc/" + p.name + "/NOTICE": {0o644, 0},
	} {
		if h := members[name]; h == nil || h.Mode != want[0] || int64(h.Uid) != want[1] {
			t.Errorf("%s: header %+v", name, h)
		}
	}
	if members[extra] == nil {
		t.Errorf("the image does not contain %s", extra)
	}
	if h := members["etc/ssl/certs/ca-certificates.crt"]; h == nil || h.Size < 100_000 {
		t.Errorf("certificates: %+v", h)
	}
}

func TestBillOfMaterials(t *testing.T) {
	r, files := readRelease(t)
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(files["decamp-lab-1.2.3.cdx.json"]), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	c := *bom.Components
	if bom.Metadata.Component.Name != "decamp-lab" || bom.Metadata.Timestamp != r.date.Format(time.RFC3339) || len(c) != 2 {
		t.Fatalf("bill of materials %+v", bom)
	}
	if one := c[0]; one.PackageURL != "pkg:golang/example.com/one@v1.2.0" || (*one.Licenses)[0].License.ID != "MIT" || (*one.Hashes)[0].Value != "7427cce12c7d8010b4bb144176517024"+"04b5ce1149a1660b51f29f2834636014" {
		t.Errorf("component %+v with hashes %+v", one, *one.Hashes)
	}
	if d := (*bom.Dependencies)[0]; len(*d.Dependencies) != 2 {
		t.Errorf("dependency %+v", d)
	}
}

func TestLicencesAreListed(t *testing.T) {
	text := string(formatLicences(prebuilt().modules["decamp"]))
	for _, want := range []string{"  example.com/one v1.2.0: MIT\n", "text of one", "text of std", "std go1.26.8, PATENTS", "grant of std"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestLicencesAreClassified(t *testing.T) {
	apache, err := os.ReadFile("../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	m := module{path: "example.com/one", texts: []licence{{"LICENSE", apache}}}
	if err := m.classifyLicences(); err != nil || !slices.Equal(m.licences, []string{"Apache-2.0"}) {
		t.Errorf("licences %v, error %v", m.licences, err)
	}
	for _, texts := range [][]licence{nil, {{"LICENSE", []byte("Ask us.")}}, {{"LICENSE-3RD-PARTY.md", apache}}} {
		m := module{path: "example.com/one", texts: texts}
		if err := m.classifyLicences(); err == nil || !strings.Contains(err.Error(), "example.com/one") {
			t.Errorf("%v: licences %v, error %v", texts, m.licences, err)
		}
	}
}

func TestReleaseNotes(t *testing.T) {
	const changelog = "# Changelog\n\nText.\n\n## Unreleased\n\n- new\n\n## [1.10.0] - 2026-12-01\n\n- ten\n\n### Part\n\n- more\n\n## 1.1.0\n\n- one\n"
	for heading, want := range map[string]string{"Unreleased": "- new", "1.10.0": "- ten\n\n### Part\n\n- more", "1.1.0": "- one", "1.1": "", "1.1x0": ""} {
		if got := string(cutSection([]byte(changelog), heading)); got != want {
			t.Errorf("%s: %q, want %q", heading, got, want)
		}
	}
	r := newRelease(t)
	notes, err := r.cutReleaseNotes()
	if err != nil || !bytes.HasPrefix(notes, []byte("# decamp 1.2.3\n\n")) || len(notes) < 100 {
		t.Errorf("notes %s, error %v", notes, err)
	}
	r.tagged = true
	if _, err := r.cutReleaseNotes(); err == nil || !strings.Contains(err.Error(), "no section 1.2.3") {
		t.Errorf("a tagged release without a section: %v", err)
	}
}

func TestSignature(t *testing.T) {
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := private.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	r := newRelease(t)
	sums := filepath.Join(r.out, sumsName)
	t.Setenv(keyVariable, string(plain))
	if err := (&artefacts{release: r}).writeSums(); err != nil {
		t.Fatal(err)
	}
	if out := runTool(t, "minisign", "-Vm", sums, "-P", public.String()); !strings.Contains(out, "decamp 1.2.3") {
		t.Errorf("the trusted comment is missing: %s", out)
	}
	text, err := os.ReadFile(sums)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sums, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("minisign", "-Vm", sums, "-P", public.String()).CombinedOutput(); err == nil {
		t.Errorf("changed sums are accepted: %s", out)
	}
	t.Setenv(keyVariable, "no key")
	if err := (&artefacts{release: r}).writeSums(); err == nil || !strings.Contains(err.Error(), keyVariable) || strings.Contains(err.Error(), "no key") {
		t.Errorf("a text that is not a key: %v", err)
	}
}

func TestUnsignedReleaseWarns(t *testing.T) {
	var log bytes.Buffer
	r := newRelease(t)
	r.log = &log
	t.Setenv(keyVariable, "")
	if err := (&artefacts{release: r}).writeSums(); err != nil {
		t.Fatal(err)
	}
	files := readFolder(t, r.out)
	if !strings.Contains(log.String(), "warning: DECAMP_MINISIGN_KEY is not set") || files[signatureName] != nil {
		t.Errorf("the log is %s", log.String())
	}
}

func TestManPages(t *testing.T) {
	r := newRelease(t)
	all := map[string][]byte{}
	for _, p := range programs {
		pages, err := r.readManPages(p)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, pages)
	}
	if len(all) < 50 {
		t.Errorf("only %d pages: %q", len(all), slices.Sorted(maps.Keys(all)))
	}
	args := []string{"-T", "lint", "-W", "warning"}
	for name, text := range all {
		path := filepath.Join(r.out, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	runTool(t, "mandoc", args...)
	for page, want := range map[string][]string{
		"decamp-plan-run.1": {"decamp-plan-run - ", "decamp plan run FILE", "EXIT CODES"},
		"decamp-migrate.1":  {"--power-off\n", "TRANSPORT FLAGS", "decamp 1.2.3"},
		"decamp.1":          {"decamp - migrate virtual machines from VMware to KVM", "COMMANDS"},
		"decamp-warm.7":     {"decamp-warm - ", "decamp(1)"},
		"decamp-lab.1":      {"--datastore-rate RATE", "EXAMPLES", "interrupted, or"},
	} {
		text := runTool(t, "mandoc", "-T", "ascii", filepath.Join(r.out, page))
		for strings.Contains(text, "\b") { // overstrikes
			i := strings.IndexByte(text, '\b')
			text = text[:i-1] + text[i+1:]
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %q in:\n%s", page, w, text)
			}
		}
	}
}

func TestVersionAndDate(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		runTool(t, "git", append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("VERSION", "1.2.3\n")
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if _, err := openRelease(t.Context(), root, "", "", t.Output()); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("without a repository and a date: %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := openRelease(t.Context(), root, "", "", t.Output()); err == nil {
		t.Error("a date that is not a number is accepted")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1000")
	r, err := openRelease(t.Context(), root, "", "", t.Output())
	if err != nil || r.version != "1.2.3" || r.date.Unix() != 1000 || r.tagged {
		t.Errorf("release %+v, error %v", r, err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	t.Setenv("GIT_COMMITTER_DATE", "@1795838957 +0100")
	git("init", "-q")
	git("add", "VERSION")
	git("commit", "-qm", "one")
	var log bytes.Buffer
	if r, err = openRelease(t.Context(), root, "", "", &log); err != nil || r.date.Unix() != 1795838957 || r.tagged {
		t.Errorf("release %+v, error %v", r, err)
	}
	if !strings.Contains(log.String(), "no tag v1.2.3") {
		t.Errorf("the log is %q", log.String())
	}
	git("tag", "v1.2.4")
	if _, err = openRelease(t.Context(), root, "", "", t.Output()); err == nil || !strings.Contains(err.Error(), "v1.2.4") {
		t.Errorf("the tag of another version: %v", err)
	}
	git("tag", "v1.2.3")
	log.Reset()
	if r, err = openRelease(t.Context(), root, "", "", &log); err != nil || !r.tagged || log.Len() > 0 {
		t.Errorf("release %+v, error %v, log %s", r, err, log.String())
	}
	write("VERSION", "1.2.3\n\n")
	if _, err = openRelease(t.Context(), root, "", "", &log); err != nil || !strings.Contains(log.String(), "not committed") {
		t.Errorf("a changed file: %v, %s", err, log.String())
	}
}

// A binary depends neither on the folder and the environment of the build nor on the repository, and it is static.
func TestBinaryDependsOnTheSourceOnly(t *testing.T) {
	t.Setenv("GOFLAGS", "-buildvcs=true")
	t.Setenv("GOAMD64", "v3")
	var sums []string
	for _, folder := range []string{"a", "longer/path"} {
		root := filepath.Join(t.TempDir(), folder)
		for name, text := range map[string]string{
			"go.mod":                  "module github.com/decamp/decamp\n\ngo 1.26.0\n",
			"cmd/small/main.go":       "package main\n\nimport (\n\t\"os\"\n\n\t\"github.com/decamp/decamp/internal/buildinfo\"\n)\n\nfunc main() { os.Stdout.WriteString(buildinfo.Linked()) }\n",
			"internal/buildinfo/b.go": "package buildinfo\n\nvar linked string\n\nfunc Linked() string { return linked }\n",
		} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := &release{root: root, version: "1.2.3"}
		binary := filepath.Join(root, "small")
		if err := r.buildBinary(context.Background(), "small", "amd64", binary); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(root)) {
			t.Errorf("the binary contains the path %s", root)
		}
		if out := runTool(t, binary); out != "1.2.3" {
			t.Errorf("the version is %q", out)
		}
		f, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 || f.Section(".symtab") != nil {
			t.Errorf("the binary is not static or not stripped: %v, %v", libraries, err)
		}
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(content)))
	}
	if sums[0] != sums[1] {
		t.Errorf("builds in two folders have the sums %s", sums)
	}
}
