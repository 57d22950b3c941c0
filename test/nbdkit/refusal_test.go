package nbdkit

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/nfcplugin"
)

// nbdkit ends with one line of error for each wrong parameter, before a client connects.
func TestWrongParametersAreRefused(t *testing.T) {
	t.Parallel()
	cfg := newConfig(16)
	cfg.VMs[0].Disks = append(cfg.VMs[0].Disks, cfg.VMs[0].Disks[0])
	r := newRig(t, cfg)
	wrong := strings.Repeat("AB:", 19) + "AB"
	for _, v := range []struct {
		parameters []string
		words      []string
	}{
		{r.parameters("thumprint=1"), []string{`"thumprint" is unknown`, "did you mean thumbprint=", "nfchostport"}},
		{r.parameters("libdir=/opt"), []string{`"libdir" is unknown`, "connections"}},
		{r.parameters("server="), []string{"server= is required"}},
		{r.parameters("vm="), []string{"vm= is required"}},
		{r.parameters("file="), []string{"file= is required"}},
		{r.parameters("password="), []string{"password=+FILE or cookie=+FILE is required"}},
		{r.parameters("vm=web01"), []string{"vm=moref=vm-123"}},
		{r.parameters("file=web01.vmdk"), []string{"[datastore] folder/file"}},
		{r.parameters("insecure=maybe"), []string{"insecure=", "neither true nor false"}},
		{r.parameters("thumbprint=AB:CD"), []string{"thumbprint=", "SHA-1 or SHA-256"}},
		{r.parameters("port=99999"), []string{"port=", "1 to 65535"}},
		{r.parameters("connections=17"), []string{"1 to 16"}},
		{r.parameters("transport=san"), []string{"neither nfc nor https"}},
		{append(r.parameters(), "user=eve"), []string{"user= is given twice"}},
		{r.parameters("password=+/nonexistent"), []string{"/nonexistent"}},

		{r.parameters("vm=moref=vm-999"), []string{"vm=moref=vm-999", "no VM"}},
		{r.parameters("file=[datastore1] web02/web02.vmdk"), []string{"web02.vmdk is not a disk of the VM web01", r.vm.Disks[0].Path.String(), r.vm.Disks[1].Path.String()}},
		{r.parameters("thumbprint=" + wrong), []string{wrong + " is required", r.thumbprint() + " is shown"}},
		{r.parameters("thumbprint=", "insecure=false"), []string{"is not trusted", "thumbprint=" + r.thumbprint()}},
		{r.parameters("server=host.invalid"), []string{"host.invalid"}},
		{r.parameters("port=1"), []string{":1", "refused"}},
		{r.parameters("cookie=ended", "password="), []string{"the session of cookie= has ended"}},
		{r.parameters("nfchostport=1"), []string{":1"}},
	} {
		r.requireRefused(v.parameters, v.words...)
	}
	background := exec.Command("nbdkit", append([]string{"-U", r.filePath("socket"), plugin}, r.parameters("conections=1")...)...)
	if out, err := background.CombinedOutput(); err == nil || !strings.Contains(string(out), "did you mean connections=?") {
		t.Errorf("background server: error %v, output %s", err, out)
	}
	before := r.lab.Stats().SOAP["Login"]
	r.requireRefused(r.parameters("password=+"+r.writeFile("wrong", "wrong")), "user "+r.lab.User(), "check user= and password=")
	if logins := r.lab.Stats().SOAP["Login"] - before; logins != 1 {
		t.Errorf("a wrong password was sent %d times, want once", logins)
	}
	if open := r.lab.Stats().NFC.SessionsOpen; open != 0 {
		t.Errorf("%d NFC sessions are open, want none", open)
	}
}

// Each way to identify the server works. insecure=true alone prints one warning.
func TestServerIsIdentified(t *testing.T) {
	t.Parallel()
	r := newRig(t, newConfig(16))
	known := r.filePath("known.json")
	for _, v := range []struct {
		parameters []string
		printed    string
	}{
		{r.parameters(), ""},
		{r.parameters("thumbprint=" + strings.ToLower(r.lab.Fingerprint())), ""},
		{r.parameters("thumbprint=", "known-hosts="+known), ""}, // pins the certificate
		{r.parameters("thumbprint=", "known-hosts="+known, "insecure=false"), ""},
		{r.parameters("thumbprint="), "nbdkit: error: warning: the certificate of 127.0.0.1 is not verified; set thumbprint=" + r.thumbprint()},
	} {
		s := r.startServer(r.virtV2V(v.parameters)...)
		r.runTool("nbdinfo", "--size", r.uri())
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.wait()
		if out := s.output(); !strings.HasPrefix(out, v.printed) || strings.Count(out, "\n") > 1 || v.printed == "" && out != "" {
			t.Errorf("%v: nbdkit printed %s, want %q", v.parameters, out, v.printed)
		}
		_ = os.Remove(r.filePath("pid"))
		_ = os.Remove(r.filePath("socket"))
	}
	text, err := os.ReadFile(known)
	if err != nil || !strings.Contains(string(text), strings.ToUpper(r.lab.Fingerprint())) {
		t.Fatalf("known hosts: %s, %v", text, err)
	}
	other := strings.Repeat("00:", 31) + "00"
	r.writeFile("known.json", strings.ReplaceAll(string(text), r.lab.Fingerprint(), other))
	r.requireRefused(r.parameters("thumbprint=", "known-hosts="+known), "changed", known, r.lab.Fingerprint())
}

// The session of cookie= is used without a login, and is not logged out.
func TestCookieIsUsedAndNotLoggedOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, newConfig(16))
	owner := r.newSession()
	cookie, err := owner.Cookie(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	before := r.lab.Stats().SOAP
	s := r.startServer(r.virtV2V(r.parameters("cookie=+"+r.writeFile("cookie", cookie), "password="))...)
	r.copyAndCompare(r.diskContent())
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.wait()
	after := r.lab.Stats().SOAP
	if after["Login"] != before["Login"] || after["Logout"] != before["Logout"] {
		t.Errorf("calls before %v, after %v, want no login or logout", before, after)
	}
	if _, err := owner.BareVM(t.Context(), r.vm.Ref); err != nil {
		t.Error(err)
	}
	if now := r.lab.Stats().SOAP["Login"]; now != before["Login"] {
		t.Error("the owner of the cookie had to log in again")
	}
}

// The plugin answers the probes of virt-v2v without parameters, and its help lists each parameter.
func TestPluginDump(t *testing.T) {
	t.Parallel()
	r := &rig{t: t}
	dump := r.runTool("nbdkit", plugin, "--dump-plugin")
	for _, line := range []string{"name=nfc", "version=1.2.3", "thread_model=parallel", "errno_is_preserved=1", "nfc_transports=nfc,https"} {
		if !strings.Contains(dump, line+"\n") {
			t.Errorf("%s is not in:\n%s", line, dump)
		}
	}
	if out := r.runTool("nbdkit", plugin, "--version"); !strings.Contains(out, "nfc 1.2.3") {
		t.Error(out)
	}
	help := r.runTool("nbdkit", plugin, "--help")
	for _, name := range nfcplugin.ParameterNames() {
		if !strings.Contains(help, "\n"+name+"=") {
			t.Errorf("%s= is missing in the help", name)
		}
	}
}
