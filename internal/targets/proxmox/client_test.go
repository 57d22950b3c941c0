package proxmox

import (
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

func TestErrorText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status, body, want string
		kind               fault.Kind
	}{
		{"403 Permission check failed (/vms/100, VM.Allocate)", `{"data":null}`, "Permission check failed (/vms/100, VM.Allocate)", fault.Denied},
		{"500 Internal Server Error", `{"data":null,"message":"VM 100 already exists\n"}`, "VM 100 already exists", fault.Conflict},
		{"400 Parameter verification failed.", `{"errors":{"b":"two","a":"one\n"}}`, "Parameter verification failed. a: one b: two", fault.Invalid},
		{"596 Connection timed out", ``, "Connection timed out", fault.Transient},
		{"502 Bad Gateway", `<html>nginx</html>`, "Bad Gateway", fault.Transient},
		{"500 got\x00timeout \x1b[2J", ``, "got timeout [2J", fault.Transient},
	}
	for _, tt := range tests {
		got := errorText(tt.status, []byte(tt.body))
		if got != tt.want {
			t.Errorf("%s, %s: got %q, want %q", tt.status, tt.body, got, tt.want)
		}
		code := int(tt.status[0]-'0')*100 + int(tt.status[1]-'0')*10 + int(tt.status[2]-'0')
		if kind := kindOf(code, got); kind != tt.kind {
			t.Errorf("%s: got kind %v, want %v", tt.status, kind, tt.kind)
		}
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]network{
		"vmbr0": {"vmbr0", 0}, "vmbr1,20": {"vmbr1", 20}, "bridge:vmbr1,tag=4094": {"vmbr1", 4094},
	} {
		if got, err := parseNetwork(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "vmbr0,", "vmbr0,0", "vmbr0,4095", "vmbr0,x", "vmbr0,1,link_down=1", "a b", "a=b", "../x"} {
		if got, err := parseNetwork(text); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// Any answer of a node is read with a limit. The error text is one line without control characters. The path of a task
// has exactly four elements, none of which is "." or "..".
func FuzzAnswers(f *testing.F) {
	f.Add("500 x", []byte(`{"data":{"upid":"UPID:pve1:0:0:0:qmcreate:100:a@b:"},"message":"m","errors":{"a":"b"}}`))
	f.Add("400 Parameter verification failed.", []byte(`{"data":[{"vmid":100,"node":"pve1","tags":"a;b"}]}`))
	f.Add("200 OK", []byte(`{"data":"UPID:../..:0"}`))
	f.Add("200 OK", []byte(`{"data":"UPID:..:0:0:0:qmstart:100:a@b:"}`))
	f.Add("200 OK", []byte(`{"data":"UPID:pve1:0:/../x?y#z%2f"}`))
	f.Fuzz(func(t *testing.T, status string, body []byte) {
		text := errorText(status, body)
		if len(text) > fault.MaxLine+len("…") || !utf8.ValidString(text) || strings.IndexFunc(text, unicode.IsControl) >= 0 {
			t.Fatalf("%q", text)
		}
		var list []resource
		_ = decodeAnswer(body, &list)
		var id rawValue
		_ = decodeAnswer(body, &id)
		var task upid
		if decodeAnswer(body, &task) == nil {
			if p, err := task.apiPath(); err == nil {
				id, unescapeErr := url.PathUnescape(path.Base(p))
				if unescapeErr != nil || id != string(task) || strings.Count(p, "/") != 4 || strings.ContainsAny(p, "?#") || path.Clean(p) != p {
					t.Fatalf("got path %q of task %q", p, task)
				}
			}
		}
		parseDescription(string(body), &inventory.VM{}, 100)
	})
}
