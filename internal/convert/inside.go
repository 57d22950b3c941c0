package convert

import (
	"io"
	"path"
	"strings"

	"github.com/decamp/decamp/internal/guest/initramfs"
)

// inside is what of an initramfs matters to who adds to it.
type inside struct {
	modules map[string]string // path within lib/modules/RELEASE by name
	load    string            // conf/modules of initramfs-tools
	links   map[string]string // our files of network names
	tools   bool              // made by initramfs-tools
	dracut  bool
}

// look reads an initramfs, what was appended to it before included.
func look(data []byte, k kernel) (inside, error) {
	in := inside{modules: map[string]string{}, links: map[string]string{}}
	for _, part := range parts(data) {
		if err := in.read(part, k); err != nil {
			return inside{}, err
		}
	}
	return in, nil
}

func (in *inside) read(data []byte, k kernel) error {
	return initramfs.Read(data, func(e initramfs.Entry, body io.Reader) error {
		switch {
		case strings.HasPrefix(e.Name, linkPrefix):
			text, err := io.ReadAll(io.LimitReader(body, maxText))
			in.links[e.Name] = string(text)
			return err
		case e.Name == "conf/modules":
			text, err := io.ReadAll(io.LimitReader(body, maxText))
			in.load = string(text)
			return err
		case strings.HasPrefix(e.Name, "scripts/init-top") || e.Name == "conf/initramfs.conf":
			in.tools = true
		case strings.HasPrefix(e.Name, "usr/lib/dracut") || strings.HasPrefix(e.Name, "lib/dracut"):
			in.dracut = true
		case strings.Contains(path.Base(e.Name), ".ko"):
			if _, file, ok := strings.Cut(e.Name, "lib/modules/"+k.release+"/"); ok {
				in.modules[moduleName(file)] = file
			}
		}
		return nil
	})
}

// lacks returns those of the files that are not inside.
func (in inside) lacks(files []string) (out []string) {
	for _, file := range files {
		if in.modules[moduleName(file)] == "" {
			out = append(out, file)
		}
	}
	return out
}
