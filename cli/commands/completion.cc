#include <CLI/App.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/command.h"

namespace hotbed {
namespace {

// What may follow a command: its subcommands, its flags and the global ones.
std::vector<std::string> WordsAfter(const CLI::App* app) {
  std::vector<std::string> words;
  for (const CLI::App* sub : app->get_subcommands({})) words.push_back(sub->get_name());
  for (const CLI::App* at = app; at != nullptr; at = at->get_parent()) {
    for (const CLI::Option* option : at->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        if (at == app || name != "help") words.push_back(absl::StrCat("--", name));
      }
    }
  }
  return words;
}

// Adds the cases of a command and of those below it: `known` recognises its path, `cases` has the
// words after it.
void AddCases(const CLI::App* app, const std::string& path, std::vector<std::string>* known,
              std::string* cases) {
  absl::StrAppend(cases, "    '", path, "') words='", absl::StrJoin(WordsAfter(app), " "),
                  "' ;;\n");
  for (const CLI::App* sub : app->get_subcommands({})) {
    const std::string below = absl::StrCat(path, " ", sub->get_name());
    known->push_back(absl::StrCat("'", below, "'"));
    AddCases(sub, below, known, cases);
  }
}

std::string BashCompletion(const CLI::App* root) {
  std::vector<std::string> known;
  std::string cases;
  AddCases(root, "hotbed", &known, &cases);
  return absl::StrCat(
      "# Completion for bash. Made by 'hotbed completion bash'.\n"
      "_hotbed() {\n"
      "  local path=hotbed word words=\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"$path $word\" in\n"
      "    ",
      absl::StrJoin(known, "|"),
      ") path=\"$path $word\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$path\" in\n",
      cases,
      "  esac\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\")\n"
      "}\n"
      "complete -o default -F _hotbed hotbed\n");
}

}  // namespace

void AddCompletionCommand(CLI::App* root, CommandContext* context) {
  CLI::App* app =
      root->add_subcommand("completion", "Print a script that completes these commands");
  CLI::App* bash = app->add_subcommand(
      "bash", "For bash: source <(hotbed completion bash), or a file in bash-completion's folder");
  context->Runs(bash, [root, context] {
    *context->out << BashCompletion(root);
    return absl::OkStatus();
  });
}

}  // namespace hotbed
