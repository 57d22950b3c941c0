package browser_test

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/report"
	"github.com/decamp/decamp/test/browser"
)

// screenshots is the environment variable with the folder for screenshots of the report. If it is empty, none are saved.
const screenshots = "DECAMP_SCREENSHOTS"

// writeReport writes a report of test rows and the published rows, and returns its URL.
func writeReport(t *testing.T) (url string) {
	t.Helper()
	text, err := os.Open("../../internal/bench/report/testdata/rows.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	rows, err := bench.ReadRows(text)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := report.WriteHTML(f, report.New(report.NewSet("own", rows), report.Published())); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

// The report fits a screen and a phone: no element is wider than the page. It follows the light and the dark colour scheme.
func TestTheReportIsLegible(t *testing.T) {
	requireTool(t, browser.Program)
	b := browser.Start(t)
	url := writeReport(t)
	for _, look := range []struct {
		name          string
		width, height int
		scheme        string
	}{{"screen-light", 1280, 900, "light"}, {"screen-dark", 1280, 900, "dark"}, {"phone-light", 390, 844, "light"}, {"phone-dark", 390, 844, "dark"}} {
		b.SetWindow(look.width, look.height, look.scheme)
		b.Open(url)
		b.Wait(`document.readyState === "complete"`)
		var wide []string
		b.Eval(`[...document.body.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, nav")).map((e) => e.outerHTML.slice(0, 120))`, &wide)
		if len(wide) > 0 {
			t.Errorf("%s: elements wider than the page: %q", look.name, wide)
		}
		picture := b.Screenshot()
		if dark := brightness(picture.At(2, 2)) < 0.2; dark != (look.scheme == "dark") || picture.Bounds().Dx() != look.width {
			t.Errorf("%s: %v, dark: %v", look.name, picture.Bounds(), dark)
		}
		if n := countColors(picture); n < 50 {
			t.Errorf("%s: %d colors, want 50 or more", look.name, n)
		}
		saveScreenshot(t, look.name, picture)
	}
	if errs := b.Errors(); len(errs) != 0 {
		t.Errorf("errors of the page: %v", errs)
	}
}

func brightness(c color.Color) float64 {
	r, g, b, _ := c.RGBA()
	return (float64(r) + float64(g) + float64(b)) / 3 / 0xffff
}

func countColors(picture image.Image) int {
	seen := map[color.Color]bool{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			seen[picture.At(x, y)] = true
		}
	}
	return len(seen)
}

func saveScreenshot(t *testing.T, name string, picture image.Image) {
	t.Helper()
	dir := os.Getenv(screenshots)
	if dir == "" {
		return
	}
	f, err := os.Create(filepath.Join(dir, "report-"+name+".png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := png.Encode(f, picture); err != nil {
		t.Fatal(err)
	}
}

// The controls of the report filter and sort its rows and change its colours.
func TestTheReportAnswers(t *testing.T) {
	requireTool(t, browser.Program)
	b := browser.Start(t)
	b.SetWindow(1280, 900, "light")
	b.Open(writeReport(t))
	b.Wait(`document.readyState === "complete" && !document.querySelector("#filters").hidden`)
	const shown = `[...document.querySelectorAll(".sort tbody tr")].filter((r) => !r.hidden)`
	var all, chosen, bars int
	b.Eval(shown+`.length`, &all)
	choose := func(name, value string) {
		b.Eval(fmt.Sprintf(`{const s = document.querySelector("select[name=%s]"); s.value = %q; s.dispatchEvent(new Event("change", {bubbles: true}))}`, name, value), nil)
	}
	choose("set", "published")
	choose("nic", "25g")
	b.Eval(shown+`.length`, &chosen)
	b.Eval(`[...document.querySelectorAll("#rates .bar")].filter((r) => !r.hidden).length`, &bars)
	if all != 17+19 || chosen != 10 || bars != 10 {
		t.Errorf("%d rows, %d of them shown, %d bars", all, chosen, bars)
	}
	var first, last string
	b.Eval(`document.querySelectorAll(".sort th button")[1].click()`, nil)
	b.Eval(shown+`[0].cells[0].textContent`, &first)
	b.Eval(`document.querySelectorAll(".sort th button")[1].click()`, nil)
	b.Eval(shown+`[0].cells[0].textContent`, &last)
	if first != "esxi_ssd_nfs_nvme_25g_mtu9000" || last != "esxi_hdd_nfs_hdd_25g_mtu1500_sync" {
		t.Errorf("sorted from %s to %s", last, first)
	}
	var before, after string
	b.Eval(`getComputedStyle(document.body).backgroundColor`, &before)
	b.Eval(`document.querySelector("#theme").click()`, nil)
	b.Eval(`getComputedStyle(document.body).backgroundColor`, &after)
	if before == after {
		t.Errorf("the background colour stays %s", after)
	}
	if errs := b.Errors(); len(errs) != 0 {
		t.Errorf("errors of the page: %v", errs)
	}
}
