#include <CLI/App.hpp>
#include <CLI/Error.hpp>
#include <CLI/Validators.hpp>
#include <memory>

#include "cli/base/command.h"
#include "cli/bench/bench_options.h"

namespace hotbed {
namespace {

void AddOption(CLI::App* app, const BenchOption& option) {
  if (bool* const* flag = std::get_if<bool*>(&option.value)) {
    app->add_flag(option.flag, **flag, option.help);
    return;
  }
  CLI::Option* added = std::visit(
      [&](auto* value) {
        return app->add_option(option.flag, *value, option.help)->capture_default_str();
      },
      option.value);
  if (!option.choices.empty()) added->check(CLI::IsMember(option.choices));
}

void AddKind(CLI::App* bench, CommandContext* context, const char* name, BenchKind kind,
             const char* help) {
  auto options = std::make_shared<BenchOptions>();
  options->kind = kind;
  CLI::App* app = bench->add_subcommand(name, help);
  for (const BenchOption& option : BenchOptionList(options.get())) AddOption(app, option);
  app->callback([context, options] {
    const absl::Status valid = ValidateBenchOptions(*options);
    if (!valid.ok()) throw CLI::ValidationError(std::string(valid.message()));
    context->run = [context, options] {
      options->coordinator = context->coordinator;
      options->command = context->command_line;
      options->json = context->json();
      options->out = context->out;
      options->err = context->err;
      options->timeout = context->timeout_duration();
      return RunBench(*options);
    };
  });
}

}  // namespace

void AddBenchCommands(CLI::App* bench, CommandContext* context) {
  AddKind(bench, context, "pull", BenchKind::kPull, "Training reads");
  AddKind(bench, context, "push", BenchKind::kPush, "Gradient writes");
  AddKind(bench, context, "mixed", BenchKind::kMixed,
          "A pull and a push a step, as a trainer does");
  AddKind(bench, context, "lookup", BenchKind::kLookup, "Inference reads, one small message each");
}

}  // namespace hotbed
