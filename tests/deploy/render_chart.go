// render_chart CHART RELEASE NAMESPACE [VALUES...]: the documents of a Helm chart on standard output, by Go's own template
// engine and Sprig's functions, which are what Helm renders with. A subset: no dependencies, no hooks, no lookup.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type files struct{ root string }

// Get is empty for a file that is not there, as in Helm.
func (f files) Get(name string) string {
	text, _ := os.ReadFile(filepath.Join(f.root, name))
	return string(text)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render_chart:", err)
		os.Exit(1)
	}
}

func readYaml(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	fail(err)
	values := map[string]interface{}{}
	fail(yaml.Unmarshal(text, &values))
	return values
}

// Maps are merged, everything else is replaced.
func override(into, from map[string]interface{}) {
	for key, value := range from {
		below, isMap := value.(map[string]interface{})
		old, wasMap := into[key].(map[string]interface{})
		if isMap && wasMap {
			override(old, below)
		} else {
			into[key] = value
		}
	}
}

// Fields of Chart.yaml begin with a capital in templates.
func capitals(fields map[string]interface{}) map[string]interface{} {
	out := map[string]interface{}{}
	for key, value := range fields {
		out[strings.ToUpper(key[:1])+key[1:]] = value
	}
	return out
}

func functions(all *template.Template) template.FuncMap {
	functions := sprig.TxtFuncMap()
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["toYaml"] = func(value interface{}) (string, error) {
		// By way of JSON, as in Helm, for the same order and form.
		text, err := json.Marshal(value)
		if err != nil {
			return "", err
		}
		var plain interface{}
		if err := yaml.Unmarshal(text, &plain); err != nil {
			return "", err
		}
		out, err := yaml.Marshal(plain)
		return strings.TrimSuffix(string(out), "\n"), err
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, errors.New(message)
		}
		return value, nil
	}
	return functions
}

func main() {
	if len(os.Args) < 4 {
		fail(errors.New("give the chart, the release's name and the namespace"))
	}
	chart := os.Args[1]
	values := readYaml(filepath.Join(chart, "values.yaml"))
	for _, path := range os.Args[4:] {
		override(values, readYaml(path))
	}
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(functions(all))
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	fail(err)
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		fail(err)
		_, err = all.New(path).Parse(string(text))
		fail(err)
	}
	data := map[string]interface{}{
		"Values": values,
		"Chart":  capitals(readYaml(filepath.Join(chart, "Chart.yaml"))),
		"Release": map[string]interface{}{
			"Name": os.Args[2], "Namespace": os.Args[3], "Service": "Helm", "IsInstall": true, "IsUpgrade": false},
		"Files": files{chart},
	}
	for _, path := range paths {
		if strings.HasSuffix(path, ".yaml") {
			fmt.Println("---")
			fail(all.ExecuteTemplate(os.Stdout, path, data))
		}
	}
}
