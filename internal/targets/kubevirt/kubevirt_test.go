package kubevirt

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/namemap"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]address{
		"/srv/out":                          {folder: "/srv/out"},
		"/o?network=pod&storageClass=a.b":   {folder: "/o", Options: Options{Network: Pod, StorageClass: "a.b"}},
		"/o?kubeconfig=~/.kube/c&context=x": {folder: "/o", kubeconfig: "~/.kube/c", context: "x"},
		"/o?kubeconfig=/etc/k&namespace=vms&uploadProxy=https://p:1": {
			folder: "/o", kubeconfig: "/etc/k", uploadProxy: "https://p:1", Options: Options{Namespace: "vms"},
		},
		"/x?accessMode=ReadWriteOnce&volumeMode=Block&network=multus:a/b": {
			folder: "/x", Options: Options{AccessMode: "ReadWriteOnce", VolumeMode: "Block", Network: "multus:a/b"},
		},
	} {
		got, err := parseAddress(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("parseAddress(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, text := range []string{
		"", "x", "?namespace=x", "/x?nope=1", "/x?namespace=Up", "/x?namespace=a&namespace=b", "/x?namespace=../y", "/x?storageClass=-",
		"/x?accessMode=RWO", "/x?volumeMode=block", "/x?network=bridge:br0", "/x?kubeconfig=k", "/x?context=c", "/x?uploadProxy=https://p",
		"/x?kubeconfig=/k&uploadProxy=http://p", "/x?%zz",
	} {
		if p, _, err := New(text, Options{}); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" || p != nil {
			t.Errorf("New(%q) = %+v, %v; want an invalid address with a hint", text, p, err)
		}
	}
	if p, _, err := New("/x?kubeconfig=/not/there", Options{}); !fault.Is(err, fault.NotFound) || p != nil {
		t.Errorf("New without a kubeconfig = %v, %v", p, err)
	}
	if _, _, err := New("/x", Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "br0"}}}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a network of libvirt: %v", err)
	}
}

// A folder for manifests keeps its images.
func TestNewKeepsImagesOfAFolder(t *testing.T) {
	p, keep, err := New("/srv/out?namespace=vms", Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"dmz": {To: "multus:dmz"}}}})
	if f, ok := p.(*Folder); err != nil || !keep || !ok || f.root != "/srv/out" || f.opts.Maps.Network("dmz").To != "multus:dmz" {
		t.Errorf("New: got %+v, %v, %v", p, keep, err)
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("/srv/out?namespace=vms&storageClass=x")
	f.Add("/x?kubeconfig=~/.kube/config&context=a")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err == nil && !filepath.IsAbs(a.folder) {
			t.Errorf("parseAddress(%q) = %+v", text, a)
		}
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
