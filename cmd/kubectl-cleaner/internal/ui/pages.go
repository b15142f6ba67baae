// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/timeline"
)

//go:embed pages/*.tmpl
var pageFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// pages are the templates and the files that pages load.
type pages struct {
	templates map[string]*template.Template
	assets    map[string][]byte
}

// page is a page to show.
type page struct {
	// Template is the name of the file with the content.
	Template, Title string
	// Current is the address of the page's entry in the navigation.
	Current string
	// Notice says what was just done. Events is the address of the events that say when the page is out of date; empty: it stays as it is.
	Notice, Events string
	Content        any
	// UTC says that the times on the page are in UTC, as those of forecasts are.
	UTC bool
	// Stranger says that it is unknown who reads the page: it says nothing about the cluster.
	Stranger bool

	Links                        []link
	Context, Address, Zone, CSRF string
	At                           *moment
}

// link is an entry of the navigation.
type link struct {
	Label, Address string
	Current        bool
}

// problem says what did not work.
type problem struct{ Title, Message, Hint, Retry string }

// listPages lists the pages of the navigation.
func listPages(current string) []link {
	links := []link{{Label: "Cleaners", Address: "/"}, {Label: "Forecast", Address: "/forecast"}, {Label: "Waste", Address: "/waste"}}
	for i := range links {
		links[i].Current = links[i].Address == current
	}
	return links
}

// listTabs lists the pages of a Cleaner; current is the end of the address of the one that is shown.
func listTabs(of Name, current string) []link {
	var out []link
	for _, tab := range []struct{ label, end string }{{"State", ""}, {"Plan", "/plan"}, {"Forecast", "/forecast"}, {"Object", "/object"}, {"Spec", "/spec"}} {
		out = append(out, link{Label: tab.label, Address: of.Path() + tab.end, Current: tab.end == current})
	}
	return out
}

// loadPages reads the files that are part of the program.
func loadPages() (*pages, error) {
	p := &pages{templates: map[string]*template.Template{}, assets: map[string][]byte{}}
	for _, name := range []string{"overview", "state", "plan", "spec", "forecast", "object", "waste", "problem"} {
		t, err := template.ParseFS(pageFiles, "pages/layout.html.tmpl", "pages/subject.html.tmpl", "pages/"+name+".html.tmpl")
		if err != nil {
			return nil, err
		}
		p.templates[name] = t
	}
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := assetFiles.ReadFile(path.Join("assets", f.Name()))
		if err != nil {
			return nil, err
		}
		p.assets["/assets/"+f.Name()] = text
	}
	p.assets["/assets/figure.css"] = []byte(timeline.Style())
	return p, nil
}

// serveAsset serves a file that pages load. Files say nothing about the cluster, and the page for strangers loads them too.
func (p *pages) serveAsset(w http.ResponseWriter, r *http.Request) bool {
	text, ok := p.assets[r.URL.Path]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(r.URL.Path)))
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the reader may have left
	return true
}

// showPage shows a page, as a whole or not at all.
func (s *Server) showPage(w http.ResponseWriter, r *http.Request, code int, p *page) {
	zone := s.Zone
	if p.UTC {
		zone = time.UTC
	}
	p.At, p.Zone = s.viewer.showTimeIn(s.Clock.Now().Truncate(time.Second), zone), s.viewer.describeZone(zone)
	if !p.Stranger {
		p.Links, p.Context, p.Address, p.CSRF = listPages(p.Current), showLine(s.Context), showLine(s.Address), s.guard.csrf
	}
	var b bytes.Buffer
	if err := s.pages.templates[p.Template].ExecuteTemplate(&b, "layout", p); err != nil {
		http.Error(w, "The page cannot be shown: "+showLine(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(b.Bytes()) // the reader may have left
	}
}

// showProblem shows what did not work.
func (s *Server) showProblem(w http.ResponseWriter, r *http.Request, code int, p *problem) {
	s.showPage(w, r, code, &page{Template: "problem", Title: p.Title, Content: p})
}

// showNotFound shows that there is no such page.
func (s *Server) showNotFound(w http.ResponseWriter, r *http.Request) {
	s.showProblem(w, r, http.StatusNotFound, &problem{Title: "There is no such page", Message: shorten(r.URL.Path, maxText), Retry: "/"})
}

// formatPercent formats a percentage as SVG takes it.
func formatPercent(n float64) string { return fmt.Sprintf("%.2f%%", n) }
