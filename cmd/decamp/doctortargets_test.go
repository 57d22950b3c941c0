package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/kube"
	"github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/lab/pve"
)

// targetFindings runs decamp doctor without a source, and returns the text of the findings about the target, by
// "status code".
func (r *testProgram) targetFindings(to string, more ...string) map[string]string {
	r.t.Helper()
	r.out.Reset()
	code := r.run(r.t.Context(), append([]string{"doctor", "--short", "--json", "--to", to, "--staging", r.t.TempDir(), "--state", r.assembler.State}, more...))
	var got diagnosisJSON
	if err := json.Unmarshal(r.out.Bytes(), &got); err != nil { // fails on a second object
		r.t.Fatalf("%v: %s%s", err, r.out, r.stderr())
	}
	if (code != 0) != (got.Error != nil) {
		r.t.Errorf("exit code %d with error %+v", code, got.Error)
	}
	findings, failed := map[string]string{}, false
	for _, f := range got.Findings {
		if !strings.HasPrefix(f.Code, "target-") {
			continue
		}
		if f.Status != "ok" && (f.Remedy == "" || f.Want == "") {
			r.t.Errorf("the finding is incomplete: %+v", f)
		}
		failed = failed || f.Status == "failure"
		findings[f.Status+" "+f.Code] += f.On + ": " + f.Found + " " + f.Remedy + "\n"
	}
	if failed && code != 6 {
		r.t.Errorf("exit code %d: %s", code, r.out)
	}
	return findings
}

// wantFindings checks that findings contains each line "status code: text", and no others except those that are ok.
func wantFindings(t *testing.T, findings map[string]string, lines ...string) {
	t.Helper()
	expected := map[string]bool{}
	for _, line := range lines {
		head, text, _ := strings.Cut(line, ": ")
		expected[head] = true
		if !strings.Contains(findings[head], text) {
			t.Errorf("finding %s does not contain %q:\n%v", head, text, findings)
		}
	}
	for head := range findings {
		if !strings.HasPrefix(head, "ok ") && !expected[head] {
			t.Errorf("unexpected finding %s: %s", head, findings[head])
		}
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// proxmoxNode starts a Proxmox server, and returns it with its target for --to.
func proxmoxNode(t *testing.T, config pve.Config) (s *pve.Server, to string) {
	t.Helper()
	config.Dir = t.TempDir()
	s, err := pve.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, "proxmox:" + s.URL() + "/pve1?token=" + writeFile(t, "token", s.Token()) + "&fingerprint=" + s.Fingerprint()
}

func TestDoctorOfProxmox(t *testing.T) {
	r := newTestProgram(t)
	s, to := proxmoxNode(t, pve.Config{})
	wantFindings(t, r.targetFindings(to), "ok target-login: node pve1: online", "ok target-features: Proxmox VE 8.4", "ok target-storage: disks: storage local-lvm is of type lvmthin",
		"ok target-storage: uploads: storage local ", "ok target-network: the bridge exists", "ok target-privilege: all privileges", "ok target-clock: from the local clock")

	names := writeFile(t, "map.yaml", "networks: {prod: vmbr9, 'dv-*': 'br-*'}\nstorages: {ssd1: nvme, ssd2: local}\n")
	wantFindings(t, r.targetFindings(to, "--map", names), "failure target-network: network prod: node pve1 has no bridge vmbr9",
		"failure target-storage: has no storage nvme that the token may use; it may use: local, local-lvm", "ok target-storage: storage local is of type dir")

	wrong := strings.Replace(to, "token=", "token="+writeFile(t, "wrong", "root@pam!decamp=99999999-2222-3333-4444-555555555555")+"&was=", 1)
	wrong, _, _ = strings.Cut(wrong, "&was=")
	wantFindings(t, r.targetFindings(wrong+"&fingerprint="+s.Fingerprint()), "failure target-login: token")
	wantFindings(t, r.targetFindings(strings.Replace(to, s.Fingerprint(), strings.Repeat("AA:", 31)+"AA", 1)), "failure target-login: has another fingerprint")
	wantFindings(t, r.targetFindings(strings.Replace(to, "/pve1?", "/pve7?", 1)), "failure target-login: has no node pve7; existing nodes: pve1", "ok target-login: the API is reachable")
	s.Close()
	wantFindings(t, r.targetFindings(to), "failure target-login: systemctl status pveproxy")
}

func TestDoctorOfUnsuitableProxmox(t *testing.T) {
	r := newTestProgram(t)
	_, to := proxmoxNode(t, pve.Config{Skew: time.Hour, Version: "8.1.0"})
	wantFindings(t, r.targetFindings(to), "warning target-clock: check both: timedatectl", "failure target-features: Proxmox VE 8.1.0 does not accept uploads")
	_, to = proxmoxNode(t, pve.Config{Tokens: []pve.Token{{User: "mover@pve", ID: "t", Secret: "s3cret-0001", ACL: pve.ACL{
		"/vms": {"VM.Audit"}, "/storage": {"Datastore.Audit"}, "/nodes": {"Sys.Audit"}, "/sdn": {"SDN.Use"},
	}}}})
	wantFindings(t, r.targetFindings(to), "failure target-privilege: VM.Allocate, VM.Config.Disk", "failure target-privilege: pveum acl modify /vms")
}

func TestDoctorOfOpenStack(t *testing.T) {
	r := newTestProgram(t)
	useCloud := func(c *openstack.Cloud, file string) {
		t.Setenv("OS_CLIENT_CONFIG_FILE", writeFile(t, "clouds.yaml", file))
		t.Setenv("OS_CLOUD", "")
	}
	c := openstack.Start(openstack.Config{})
	t.Cleanup(c.Close)
	file := string(c.CloudsYAML(writeFile(t, "ca.pem", string(c.CA()))))
	useCloud(c, file)
	wantFindings(t, r.targetFindings("openstack:lab?network=lan"), "ok target-login: Keystone accepts the credentials", "ok target-storage: quota of volumes", "ok target-network: the network exists", "ok target-privilege: a role with more than read access")
	wantFindings(t, r.targetFindings("openstack:lab?network=moon&volumeType=gold&flavor=huge&availabilityZone=mars"), "failure target-network: OpenStack has no network moon",
		"failure target-storage: volume type gold does not exist", "failure target-features: flavor huge does not exist", "failure target-features: availability zone mars does not exist")
	useCloud(c, strings.ReplaceAll(file, openstack.Password, "wrong"))
	wantFindings(t, r.targetFindings("openstack:lab?network=lan"), "failure target-login: token issue")
	useCloud(c, file)
	c.Close()
	began := time.Now()
	wantFindings(t, r.targetFindings("openstack:lab?network=lan"), "failure target-login: lab")
	if took := time.Since(began); took > time.Minute { // a migration waits two minutes
		t.Errorf("the check of a cloud that is down took %v, want at most a minute", took)
	}

	only := openstack.Start(openstack.Config{Roles: []string{"reader"}})
	t.Cleanup(only.Close)
	useCloud(only, string(only.CloudsYAML(writeFile(t, "ca.pem", string(only.CA())))))
	wantFindings(t, r.targetFindings("openstack:lab?network=lan"), "failure target-privilege: which does not permit changes")
}

func TestDoctorOfKubeVirt(t *testing.T) {
	r := newTestProgram(t)
	newCluster := func(c kube.Config) (*kube.Cluster, string) {
		cluster := kube.Start(c)
		t.Cleanup(cluster.Close)
		return cluster, "kubevirt:" + t.TempDir() + "?namespace=vms&storageClass=fast&kubeconfig=" + writeFile(t, "kubeconfig", string(cluster.Kubeconfig()))
	}
	cluster, to := newCluster(kube.Config{Classes: []string{"fast"}})
	wantFindings(t, r.targetFindings(to), "ok target-login: accepts the credentials", "ok target-features: CDI", "ok target-storage: storage class fast", "ok target-storage: upload proxy: reachable", "ok target-privilege: has the privileges to create and remove VMs")
	wrong := writeFile(t, "wrong", string(cluster.KubeconfigWith("other")))
	before, _, _ := strings.Cut(to, "&kubeconfig=")
	wantFindings(t, r.targetFindings(before+"&kubeconfig="+wrong), "failure target-login: ")
	cluster.Close()
	wantFindings(t, r.targetFindings(to), "failure target-login: ")

	_, to = newCluster(kube.Config{NoCDI: true, Denied: map[string]bool{"create virtualmachines": true}})
	if got := r.targetFindings(to); got["failure target-features"] == "" || got["failure target-storage"] == "" || got["failure target-privilege"] != "" {
		t.Errorf("got findings %v, want none about privileges without CDI", got)
	}
	_, to = newCluster(kube.Config{Classes: []string{"fast"}, Denied: map[string]bool{"create virtualmachines": true}})
	wantFindings(t, r.targetFindings(to), "failure target-privilege: the account may not create virtualmachines")
}

// decamp doctor reports no findings about a folder, and a failure if libvirt does not run.
func TestDoctorOfFolderAndLibvirt(t *testing.T) {
	r := newTestProgram(t)
	if got := r.targetFindings("kubevirt:" + t.TempDir()); len(got) > 0 {
		t.Errorf("a folder of manifests: got findings %v", got)
	}
	wantFindings(t, r.targetFindings("libvirt:qemu:///system?socket="+filepath.Join(t.TempDir(), "none")), "failure target-login: systemctl start libvirtd")
}
