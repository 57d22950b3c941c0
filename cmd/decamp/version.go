package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

const versionHelp = `
Print the version of decamp, of Go and of the platform it was built for.
`

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print the version",
		Long:        text(versionHelp),
		Args:        takes(),
		Annotations: exits(),
		RunE:        func(*cobra.Command, []string) error { return a.showVersion() },
	}
}

func (a *app) showVersion() error {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if a.json {
		return a.print(map[string]string{"version": version, "go": runtime.Version(), "platform": platform})
	}
	_, err := fmt.Fprintf(a.out, "decamp %s (%s, %s)\n", version, runtime.Version(), platform)
	return err
}
