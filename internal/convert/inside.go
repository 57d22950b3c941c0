package convert

import (
	"bytes"
	"io"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// inside has the properties of an initramfs that matter for additions.
type inside struct {
	modules map[string]string // path within lib/modules/RELEASE by name
	load    string            // conf/modules of initramfs-tools
	links   map[string]string // systemd's files of network names
	maker   string            // tool that made it, as in initramfs.Content
}

// look reads an initramfs, including earlier additions.
func look(b *budget.Budget, data []byte, k kernel) (inside, error) {
	in := inside{modules: map[string]string{}, links: map[string]string{}}
	for _, part := range parts(data) {
		if err := in.read(b, part, k); err != nil {
			return inside{}, err
		}
	}
	return in, nil
}

func (in *inside) read(b *budget.Budget, data []byte, k kernel) error {
	content, err := initramfs.Walk(b, bytes.NewReader(data), func(name string, body io.Reader) error {
		if _, file, ok := strings.Cut(name, "lib/modules/"+k.release+"/"); ok && initramfs.Module(file) != "" {
			in.modules[initramfs.Module(file)] = file
		}
		if name != "conf/modules" && !glob(linkFiles, name) {
			return nil
		}
		text, err := io.ReadAll(io.LimitReader(body, maxText))
		if name == "conf/modules" {
			in.load = string(text)
		} else {
			in.links[name] = string(text)
		}
		return err
	})
	if content.Maker != "" {
		in.maker = content.Maker
	}
	return err
}

// lacks returns those of the files that are not inside.
func (in inside) lacks(files []string) (out []string) {
	for _, file := range files {
		if in.modules[initramfs.Module(file)] == "" {
			out = append(out, file)
		}
	}
	return out
}
