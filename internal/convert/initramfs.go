package convert

import (
	"bytes"
	"io"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/initramfs"
)

// An initramfsState contains the properties of an initramfs that determine the addition.
type initramfsState struct {
	modules  map[string]string // path within lib/modules/RELEASE by module name
	loadList string            // conf/modules of initramfs-tools
	links    map[string]string // contents of systemd's files of network names, by path
	maker    string            // tool that made it, as in initramfs.Content
}

// readInitramfs reads an initramfs, including earlier additions.
func readInitramfs(b *budget.Budget, data []byte, k kernel) (initramfsState, error) {
	in := initramfsState{modules: map[string]string{}, links: map[string]string{}}
	for _, part := range splitAppended(data) {
		if err := in.readPart(b, part, k); err != nil {
			return initramfsState{}, err
		}
	}
	return in, nil
}

// readPart adds the content of one part of an initramfs.
func (in *initramfsState) readPart(b *budget.Budget, data []byte, k kernel) error {
	content, err := initramfs.Walk(b, bytes.NewReader(data), func(name string, body io.Reader) error {
		if _, file, ok := strings.Cut(name, "lib/modules/"+k.release+"/"); ok && initramfs.Module(file) != "" {
			in.modules[initramfs.Module(file)] = file
		}
		// Other files are not needed; Walk skips their content.
		if name != "conf/modules" && !matchGlob(linkFiles, name) {
			return nil
		}
		text, err := io.ReadAll(io.LimitReader(body, maxText))
		if name == "conf/modules" {
			in.loadList = string(text)
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

// missingModules returns those of the modules that the initramfs does not contain.
func (in initramfsState) missingModules(files []string) (out []string) {
	for _, file := range files {
		if in.modules[initramfs.Module(file)] == "" {
			out = append(out, file)
		}
	}
	return out
}
