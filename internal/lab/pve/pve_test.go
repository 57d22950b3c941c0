package pve

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// taskTimeout limits the wait for a task.
const taskTimeout = 2 * time.Minute

// testNode is a node with an API client.
type testNode struct {
	*Server
	t     *testing.T
	token string
	http  *http.Client
}

func newTestNode(t *testing.T, c Config) *testNode {
	t.Helper()
	c.Dir = t.TempDir()
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &testNode{Server: s, t: t, token: s.Token(), http: &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}}
}

// callAPI sends a request, and returns the status line and the data or errors of the reply.
func (r *testNode) callAPI(method, path string, form url.Values) (status string, data any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.URL()+"/api2/json"+path, strings.NewReader(form.Encode()))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r.sendRequest(req)
}

func (r *testNode) sendRequest(req *http.Request) (status string, data any) {
	r.t.Helper()
	req.Header.Set("Authorization", "PVEAPIToken="+r.token)
	res, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	var body map[string]any
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		r.t.Fatalf("%s: %v", res.Status, err)
	}
	if body["errors"] != nil {
		return res.Status, body["errors"]
	}
	return res.Status, body["data"]
}

// waitForTask waits for the end of a task and returns its exit status.
func (r *testNode) waitForTask(upid any) string {
	r.t.Helper()
	name, ok := upid.(string)
	if !ok || !strings.HasPrefix(name, "UPID:pve1:") {
		r.t.Fatalf("%v is not a UPID", upid)
	}
	for deadline := time.Now().Add(taskTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		_, data := r.callAPI("GET", "/nodes/pve1/tasks/"+url.PathEscape(name)+"/status", nil)
		if state := data.(map[string]any); state["status"] == "stopped" {
			return state["exitstatus"].(string)
		}
	}
	r.t.Fatalf("task %s does not end", name)
	return ""
}

// postUpload sends an upload with an unchanged body.
func (r *testNode) postUpload(storage, body string) (string, any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), "POST", r.URL()+"/api2/json/nodes/pve1/storage/"+storage+"/upload", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "multipart/form-data; boundary=xx")
	return r.sendRequest(req)
}

func formField(name, value string) string {
	return "--xx\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
}

func fileField(name, content string) string {
	return "--xx\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"" + name + "\"\r\nContent-Type: application/octet-stream\r\n\r\n" + content + "\r\n"
}

func TestUploads(t *testing.T) {
	disk := strings.Repeat("disk", 1024)
	imports := formField("content", "import")
	tests := []struct {
		name, storage, body, status, end string
	}{
		{"valid", "local", imports + fileField("a.raw", disk) + "--xx--\r\n", "200", "OK"},
		{"the file first", "local", fileField("a.raw", disk) + imports + "--xx--\r\n", "400", ""},
		{"a name with a blank", "local", imports + fileField("a b.raw", disk) + "--xx--\r\n", "400", ""},
		{"not an image", "local", imports + fileField("a.iso", disk) + "--xx--\r\n", "400", ""},
		{"block storage", "local-lvm", imports + fileField("a.raw", disk) + "--xx--\r\n", "500 can't upload to storage type 'lvmthin'", ""},
		{"another form of header", "local", strings.Replace(imports, "form-data; ", "form-data;", 1) + fileField("a.raw", disk) + "--xx--\r\n", "501", ""},
		{"a wrong checksum", "local", imports + formField("checksum-algorithm", "sha256") + formField("checksum", "aa") + fileField("a.raw", disk) + "--xx--\r\n", "200", "checksum mismatch"},
		{"not a qcow2", "local", imports + fileField("a.qcow2", disk) + "--xx--\r\n", "200", "qemu-img"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newTestNode(t, Config{})
			status, data := r.postUpload(tt.storage, tt.body)
			if !strings.HasPrefix(status, tt.status) {
				t.Fatalf("%s, %v", status, data)
			}
			if tt.end == "" {
				if left := r.Uploads(); len(left) > 0 {
					t.Errorf("uploads: %v", left)
				}
				return
			}
			if end := r.waitForTask(data); !strings.HasPrefix(end, tt.end) {
				t.Errorf("the task ends with %q", end)
			}
			if left := r.Uploads(); (len(left) == 1) != (tt.end == "OK") {
				t.Errorf("uploads: %v", left)
			}
		})
	}
}

func TestChunkedUploadIsRefused(t *testing.T) {
	r := newTestNode(t, Config{})
	body, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, formField("content", "import"))
		_ = w.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.URL()+"/api2/json/nodes/pve1/storage/local/upload", body)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := r.sendRequest(req); status != "501 chunked transfer encoding not supported" {
		t.Error(status)
	}
}

func TestImportsAreChecked(t *testing.T) {
	r := newTestNode(t, Config{})
	dir := t.TempDir()
	if out, err := exec.Command("sh", "-c", `cd "$1" && truncate -s 1M base.raw && qemu-img create -q -f qcow2 -b base.raw -F raw top.qcow2`, "sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	top, err := os.ReadFile(filepath.Join(dir, "top.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	_, upid := r.postUpload("local", formField("content", "import")+fileField("a.qcow2", string(top))+"--xx--\r\n")
	if end := r.waitForTask(upid); !strings.Contains(end, "backing file") {
		t.Errorf("the task ends with %q", end)
	}
	for from, want := range map[string]string{
		"/etc/passwd":              "403 Only root can pass arbitrary filesystem paths.",
		"local:import/missing.raw": "500 volume 'local:import/missing.raw' does not exist",
		"local:import/../../x.raw": "500 unable to parse volume ID",
		"nowhere:import/a.raw":     "500 storage 'nowhere' does not exist",
	} {
		status, _ := r.callAPI("POST", "/nodes/pve1/qemu", url.Values{"vmid": {"100"}, "scsi0": {"local-lvm:0,import-from=" + from}})
		if !strings.HasPrefix(status, want) {
			t.Errorf("from %s: %s", from, status)
		}
	}
	if ids := r.VMIDs(); len(ids) > 0 {
		t.Errorf("guests %v", ids)
	}
}

func TestGuestsAreCreatedChangedAndRemoved(t *testing.T) {
	r := newTestNode(t, Config{})
	hold := make(chan struct{})
	r.SetFaults(Faults{Hold: hold})
	create := url.Values{"vmid": {"100"}, "name": {"web01"}, "tags": {"a;b"}, "scsi0": {"local:1,format=qcow2,discard=on"}}
	_, upid := r.callAPI("POST", "/nodes/pve1/qemu", create)
	if g := r.Guest(100); g["lock"] != "create" || g["name"] != "" || g["tags"] != "" {
		t.Errorf("during the creation: %v", g)
	}
	if status, _ := r.callAPI("POST", "/nodes/pve1/qemu", create); status != "500 unable to create VM 100 - VM 100 already exists on node 'pve1'" {
		t.Error(status)
	}
	if status, _ := r.callAPI("PUT", "/nodes/pve1/qemu/100/config", url.Values{"name": {"x"}}); !strings.Contains(status, "can't lock file") {
		t.Error(status)
	}
	close(hold)
	if end := r.waitForTask(upid); end != "OK" {
		t.Fatal(end)
	}
	if g := r.Guest(100); g["name"] != "web01" || g["scsi0"] != "local:100/vm-100-disk-0.qcow2,discard=on,size=1G" {
		t.Errorf("guest %v", g)
	}
	for wrong, want := range map[string]string{
		"boot=order=scsi0;scsi1": "500 invalid bootorder: device 'scsi1' does not exist'",
		"colour=red":             "400", "name=a+b": "400", "scsihw=bogus": "400",
		"scsi1=local-lvm:0,import-from=local-lvm:vm-1-disk-0": "500",
	} {
		form, err := url.ParseQuery(strings.ReplaceAll(wrong, ";", "%3B"))
		if err != nil {
			t.Fatal(err)
		}
		if status, data := r.callAPI("PUT", "/nodes/pve1/qemu/100/config", form); !strings.HasPrefix(status, want) {
			t.Errorf("%s: %s, %v", wrong, status, data)
		}
	}
	_, upid = r.callAPI("DELETE", "/nodes/pve1/qemu/100?purge=1", nil)
	if end := r.waitForTask(upid); end != "OK" || len(r.VMIDs()) > 0 || len(r.Volumes()) > 0 {
		t.Errorf("%s; guests %v, volumes %v", end, r.VMIDs(), r.Volumes())
	}
}

// An EFI disk has the default format of its storage unless the request sets one. The state of a TPM is always raw.
func TestFormatsOfVolumes(t *testing.T) {
	r := newTestNode(t, Config{Storages: []Storage{{ID: "tank", Type: "dir", Content: []string{"images"}, Size: 1 << 30, Format: "qcow2"}}})
	for vmid, tt := range map[string]struct{ option, want string }{
		"100": {"", "tank:100/vm-100-disk-0.qcow2,efitype=4m,size=528K"},
		"101": {",format=raw", "tank:101/vm-101-disk-0.raw,efitype=4m,size=528K"},
	} {
		_, upid := r.callAPI("POST", "/nodes/pve1/qemu", url.Values{
			"vmid": {vmid}, "bios": {"ovmf"}, "efidisk0": {"tank:1,efitype=4m" + tt.option}, "tpmstate0": {"tank:1,version=v2.0"},
		})
		if end := r.waitForTask(upid); end != "OK" {
			t.Fatal(end)
		}
		number, _ := strconv.Atoi(vmid)
		g := r.Guest(number)
		if g["efidisk0"] != tt.want || !strings.Contains(g["tpmstate0"], ".raw,") {
			t.Errorf("option %q: guest %v, want %s", tt.option, g, tt.want)
		}
		path, err := r.volumePath(parseDrive(g["efidisk0"]).volume)
		if err != nil {
			t.Fatal(err)
		}
		head, err := os.ReadFile(path)
		if is := strings.HasPrefix(string(head), "QFI\xfb"); err != nil || is != (tt.option == "") {
			t.Errorf("%s is qcow2: %v, %v", path, is, err)
		}
	}
}

func TestPrivileges(t *testing.T) {
	acl := ACL{"/vms": {"VM.Allocate", "VM.Audit", "VM.Config.Options"}, "/storage/local": {"Datastore.AllocateTemplate", "Datastore.Audit"}}
	r := newTestNode(t, Config{Tokens: []Token{{User: "a@pve", ID: "t", Secret: "s", ACL: acl}}})
	for _, tt := range []struct{ method, path, form, want string }{
		{"POST", "/nodes/pve1/qemu", "vmid=100&cores=2", "403 Permission check failed (/vms/100, VM.Config.CPU)"},
		{"POST", "/nodes/pve1/qemu", "vmid=100&scsi0=local-lvm:1", "403 Permission check failed (/vms/100, VM.Config.Disk)"},
		{"DELETE", "/nodes/pve1/storage/local/content/local:import%2Fa.raw", "", "403 Permission check failed (/storage/local, Datastore.Allocate)"},
		{"GET", "/nodes/pve1/storage/local-lvm/content", "", "403 Permission check failed (/storage/local-lvm, Datastore.Audit|Datastore.AllocateSpace)"},
		{"GET", "/nodes/pve2/storage", "", "500 hostname lookup 'pve2' failed"},
		{"PATCH", "/nodes", "", "501"},
	} {
		form, err := url.ParseQuery(tt.form)
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := r.callAPI(tt.method, tt.path, form); !strings.HasPrefix(status, tt.want) {
			t.Errorf("%s %s: %s", tt.method, tt.path, status)
		}
	}
	_, list := r.callAPI("GET", "/nodes/pve1/storage", nil)
	if list := list.([]any); len(list) != 1 {
		t.Errorf("storages %v", list)
	}
	for token, want := range map[string]string{
		"a@pve!t=x": "401 invalid token value!", "a@pve!u=s": "401 no such token 'u' for user 'a@pve'", "": "401 No ticket",
	} {
		r.token = token
		if status, _ := r.callAPI("GET", "/version", nil); status != want {
			t.Errorf("%q: %s", token, status)
		}
	}
}

func TestTasksOfOtherUsers(t *testing.T) {
	one, two := Token{User: "a@pve", ID: "t", Secret: "s", ACL: ACL{"/": All()}}, Token{User: "b@pve", ID: "t", Secret: "s", ACL: ACL{"/vms": {"VM.Audit"}}}
	r := newTestNode(t, Config{Tokens: []Token{one, two}})
	hold := make(chan struct{})
	r.SetFaults(Faults{Hold: hold})
	_, upid := r.callAPI("POST", "/nodes/pve1/qemu", url.Values{"vmid": {"100"}})
	for token, want := range map[string]int{one.String(): 1, two.String(): 0} {
		r.token = token
		if _, list := r.callAPI("GET", "/nodes/pve1/tasks?source=active", nil); len(list.([]any)) != want {
			t.Errorf("%s sees %v", token, list)
		}
	}
	r.token = two.String()
	if status, _ := r.callAPI("GET", "/nodes/pve1/tasks/"+url.PathEscape(upid.(string))+"/status", nil); !strings.HasPrefix(status, "403") {
		t.Errorf("a task of another user: %s", status)
	}
	r.token = one.String()
	if status, _ := r.callAPI("DELETE", "/nodes/pve1/tasks/"+url.PathEscape(upid.(string)), nil); !strings.HasPrefix(status, "200") {
		t.Error(status)
	}
	if end := r.waitForTask(upid); end != "interrupted by signal" {
		t.Errorf("the task ends with %q", end)
	}
	close(hold)
}
