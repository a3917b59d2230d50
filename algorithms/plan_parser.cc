// parse_plan_text: one pass, a line at a time. Numbers are bounded as they are read, and sums of
// them are bounded too, so that neither the parser nor the verifier can be made to use more than
// some hundred MB.
#include <charconv>
#include <set>

#include "algorithms/plan_text.h"

namespace unisono {
namespace {

constexpr int64_t kMaxRanks = 1 << 15;
constexpr int64_t kMaxBlocks = 1 << 16;      // of a buffer, a message, a lane's scratch
constexpr int64_t kMaxAllBlocks = 1 << 24;   // of all ranks' buffers, and of all scratch
constexpr int64_t kMaxChannel = 127;         // the library's own are above
constexpr int64_t kMaxChannels = INT16_MAX;  // of a rank
constexpr int64_t kMaxEnds = 1 << 24;        // readers of all channels with several
constexpr int64_t kMaxWork = 1 << 28;        // blocks that all steps touch
constexpr size_t kMaxName = 31;
constexpr size_t kMaxLanes = 127;

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<std::vector<Plan>> parse() {
    if (rest_.size() > kMaxPlanTextBytes)
      return error(Code::kInvalidArgument, "{} bytes; a plan has at most {}", rest_.size(),
                   kMaxPlanTextBytes);
    TRY(parse_head());
    while (key_ == "lane") TRY(parse_lane());
    while (key_ == "rank") TRY(parse_rank());
    if (key_ != "end") return expected("'rank' or 'end'");
    TRY(end_of_line());
    const auto given = static_cast<int32_t>(plans_.size());
    if (given != head_.ranks)
      return problem("end", "{} ranks are described, 'ranks' says {}", given, head_.ranks);
    next_line();
    if (!key_.empty()) return problem(quoted(key_), "nothing may follow 'end'");
    return std::move(plans_);
  }

 private:
  template <class... Args>
  Status problem(std::string_view field, fmt::format_string<Args...> format, Args&&... args) const {
    return error(Code::kInvalidArgument, "line {}: {}: {}", line_number_, field,
                 fmt::format(format, std::forward<Args>(args)...));
  }
  // What stands there, short and without what a terminal might take for a command.
  static std::string quoted(std::string_view bytes) {
    std::string text = "'";
    for (const char c : bytes.substr(0, 40)) text += c >= ' ' && c <= '~' ? c : '?';
    return text + (bytes.size() > 40 ? "...'" : "'");
  }
  Status expected(const char* what) const {
    if (key_.empty()) return problem("end of the text", "{} is missing", what);
    return problem(quoted(key_), "{} was expected here", what);
  }

  // To the next line that says something; key_ is its first word. At the end: empty.
  void next_line() {
    do {
      ++line_number_;
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      line_ = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      if (const size_t comment = line_.find('#'); comment != std::string_view::npos)
        line_ = line_.substr(0, comment);
      key_ = next_word();
    } while (key_.empty() && !rest_.empty());
  }
  // Empty at the line's end.
  std::string_view next_word() {
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (!line_.empty() && blank(line_.front())) line_.remove_prefix(1);
    size_t end = 0;
    while (end < line_.size() && !blank(line_[end])) ++end;
    const std::string_view word = line_.substr(0, end);
    line_.remove_prefix(end);
    return word;
  }
  Status end_of_line() {
    const std::string_view word = next_word();
    if (word.empty()) return {};
    return problem(quoted(word), "nothing more was expected on this line");
  }

  Status number(std::string_view field, std::string_view word, int64_t least, int64_t most,
                int64_t* value) const {
    if (word.empty()) return problem(field, "a number is missing");
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), *value);
    if (code == std::errc::invalid_argument || end != word.data() + word.size())
      return problem(field, "{} is not a number", quoted(word));
    if (code == std::errc() && *value >= least && *value <= most) return {};
    return problem(field, "{} is not in {}..{}", quoted(word), least, most);
  }
  template <class Integer>
  Status number(std::string_view field, std::string_view word, int64_t least, int64_t most,
                Integer* value) const {
    int64_t wide = 0;
    TRY(number(field, word, least, most, &wide));
    *value = static_cast<Integer>(wide);
    return {};
  }
  Status name(std::string_view field, std::string_view word, std::string* value) const {
    bool good = !word.empty() && word.size() <= kMaxName;
    for (const char c : word)
      good &= (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!good)
      return problem(field, "{} is not a name (1 to {} of a-z 0-9 _ -)", quoted(word), kMaxName);
    *value = word;
    return {};
  }
  Status one_of(std::string_view field, std::string_view no, std::string_view yes, bool* value) {
    const std::string_view word = next_word();
    if (word != no && word != yes)
      return problem(field, "{} is neither '{}' nor '{}'", quoted(word), no, yes);
    *value = word == yes;
    return {};
  }

  // Head lines come in one order, each once.
  Status key(const char* wanted) {
    next_line();
    return key_ == wanted ? ok_status() : expected(fmt::format("'{}'", wanted).c_str());
  }
  template <class Integer>
  Status number_line(const char* wanted, int64_t least, int64_t most, Integer* value) {
    TRY(key(wanted));
    TRY(number(wanted, next_word(), least, most, value));
    return end_of_line();
  }
  Status flag_line(const char* wanted, bool* value) {
    TRY(key(wanted));
    TRY(one_of(wanted, "no", "yes", value));
    return end_of_line();
  }

  Status parse_head() {
    int64_t version = 0;
    TRY(number_line("unisono-plan", 0, INT32_MAX, &version));
    if (version != kPlanTextVersion)
      return problem("unisono-plan", "version {}; this library reads version {}", version,
                     kPlanTextVersion);
    TRY(key("algorithm"));
    TRY(name("algorithm", next_word(), &head_.algorithm));
    TRY(end_of_line());
    TRY(key("collective"));
    const std::string_view collective = next_word();
    if (!parse_collective(collective, &head_.collective))
      return problem("collective", "no collective is called {}", quoted(collective));
    TRY(end_of_line());
    TRY(number_line("ranks", 1, kMaxRanks, &head_.ranks));
    TRY(number_line("root", 0, head_.ranks - 1, &head_.root));
    TRY(key("blocks"));
    bool split = false;
    TRY(one_of("blocks", "whole", "split", &split));
    head_.rule = split ? BlockRule::kSplit : BlockRule::kWhole;
    TRY(number("blocks", next_word(), 1, kMaxBlocks, &head_.blocks));
    TRY(end_of_line());
    if (int64_t{head_.ranks} * head_.blocks > kMaxAllBlocks)
      return problem("blocks", "{} ranks of {} blocks: more than {} in all", head_.ranks,
                     head_.blocks, kMaxAllBlocks);
    TRY(number_line("message_blocks", 1, kMaxBlocks, &head_.message_blocks));
    TRY(flag_line("late", &head_.late));
    TRY(flag_line("reproducible", &head_.reproducible));
    next_line();
    return {};
  }

  Status parse_lane() {
    if (head_.lanes.size() == kMaxLanes) return problem("lane", "more than {} lanes", kMaxLanes);
    Lane lane;
    TRY(name("lane", next_word(), &lane.name));
    TRY(end_of_line());
    head_.lanes.push_back(std::move(lane));
    next_line();
    return {};
  }

  Status parse_rank() {
    Plan plan = head_;
    plan.rank = static_cast<int32_t>(plans_.size());
    int64_t rank = 0;
    TRY(number("rank", next_word(), 0, kMaxRanks, &rank));
    if (rank != plan.rank) return problem("rank", "{}, but {} is next", rank, plan.rank);
    if (rank >= plan.ranks) return problem("rank", "{} of {} ranks", rank, plan.ranks);
    TRY(end_of_line());
    TRY(parse_buffers(&plan));
    next_line();
    while (key_ == "channel") TRY(parse_channel(&plan));
    while (key_ == "step") TRY(parse_step(&plan));
    while (key_ == "repeat") TRY(parse_repeat(&plan));
    plans_.push_back(std::move(plan));
    return {};
  }

  Status parse_buffers(Plan* plan) {
    TRY(key("buffers"));
    TRY(number("buffers", next_word(), 0, plan->blocks, &plan->input_blocks));
    TRY(number("buffers", next_word(), 0, plan->blocks, &plan->output_blocks));
    TRY(end_of_line());
    TRY(key("scratch"));
    for (size_t lane = 0; lane < plan->lanes.size(); ++lane) {
      int32_t blocks = 0;
      TRY(number("scratch", next_word(), 0, kMaxBlocks, &blocks));
      plan->scratch_blocks.push_back(blocks);
      scratch_ += blocks;
    }
    if (scratch_ > kMaxAllBlocks)
      return problem("scratch", "more than {} blocks in all", kMaxAllBlocks);
    return end_of_line();
  }

  Status parse_channel(Plan* plan) {
    if (static_cast<int64_t>(plan->channels.size()) == kMaxChannels)
      return problem("channel", "more than {} of one rank", kMaxChannels);
    ChannelId id;
    TRY(number("channel number", next_word(), 0, kMaxChannel, &id.number));
    TRY(number("channel writer", next_word(), 0, plan->ranks - 1, &id.writer));
    const std::string_view reader = next_word();
    if (reader == "all") {
      id.reader = kAllButWriter;
      const bool first_mention = shared_.emplace(id.number, id.writer).second;
      if (first_mention) ends_ += plan->ranks - 1;
      if (ends_ > kMaxEnds) return problem("channel reader", "more than {} in all", kMaxEnds);
    } else {
      TRY(number("channel reader", reader, 0, plan->ranks - 1, &id.reader));
    }
    TRY(end_of_line());
    plan->channels.push_back(id);
    next_line();
    return {};
  }

  // FIRST+BLOCKS
  Status blocks(std::string_view field, std::string_view word, Chunk* chunk) const {
    const size_t plus = word.find('+');
    if (plus == std::string_view::npos)
      return problem(field, "{} is not FIRST+BLOCKS", quoted(word));
    TRY(number(field, word.substr(0, plus), 0, kMaxBlocks - 1, &chunk->first));
    return number(field, word.substr(plus + 1), 1, kMaxBlocks, &chunk->blocks);
  }

  // input:FIRST+BLOCKS, output:..., scratch.LANE:...
  Status chunk(const Plan& plan, std::string_view field, std::string_view word,
               Chunk* chunk) const {
    const size_t colon = word.find(':');
    const std::string_view buffer = word.substr(0, colon);
    if (colon == std::string_view::npos) {
      return problem(field, "{} is no place: input:0+1, output:0+1, scratch.0:0+1", quoted(word));
    } else if (buffer == "input" || buffer == "output") {
      chunk->buffer = buffer == "input" ? Buffer::kInput : Buffer::kOutput;
    } else if (buffer.substr(0, 8) == "scratch.") {
      chunk->buffer = Buffer::kScratch;
      TRY(number(field, buffer.substr(8), 0, static_cast<int64_t>(plan.lanes.size()) - 1,
                 &chunk->lane));
    } else {
      return problem(field, "there is no buffer {}", quoted(buffer));
    }
    return blocks(field, word.substr(colon + 1), chunk);
  }

  Status channel(const Plan& plan, std::string_view field, std::string_view word,
                 int16_t* index) const {
    if (plan.channels.empty()) return problem(field, "this rank has no channels");
    return number(field, word, 0, static_cast<int64_t>(plan.channels.size()) - 1, index);
  }

  Status parse_sources(const Plan& plan, Step* step) {
    std::string_view list = next_word();
    if (list.empty()) return problem("sources", "they are missing");
    while (true) {
      const size_t comma = list.find(',');
      const std::string_view word = list.substr(0, comma);
      Operand operand;
      if (word.substr(0, 5) == "recv:") {
        operand.receive = true;
        TRY(channel(plan, "recv", word.substr(5), &operand.channel));
      } else {
        TRY(chunk(plan, "source", word, &operand.chunk));
      }
      step->sources.push_back(operand);
      if (comma == std::string_view::npos) return {};
      list.remove_prefix(comma + 1);
    }
  }

  // LANE.STEP or LANE.STEP-2
  Status parse_await(const Plan& plan, std::string_view word, Step* step) const {
    const size_t dot = word.find('.'), dash = std::min(word.find('-'), word.size());
    if (dot == std::string_view::npos || dash < dot)
      return problem("after", "{} is not LANE.STEP or LANE.STEP-2", quoted(word));
    Await await;
    TRY(number("after", word.substr(0, dot), 0, static_cast<int64_t>(plan.lanes.size()) - 1,
               &await.lane));
    TRY(number("after", word.substr(dot + 1, dash - dot - 1), 0, INT32_MAX, &await.step));
    if (dash < word.size()) TRY(number("after", word.substr(dash + 1), 2, 2, &await.lag));
    step->awaits.push_back(await);
    return {};
  }

  Status parse_step(Plan* plan) {
    int8_t lane = 0;
    if (plan->lanes.empty()) return problem("step", "the plan has no lanes");
    TRY(number("step", next_word(), 0, static_cast<int64_t>(plan->lanes.size()) - 1, &lane));
    Step step;
    TRY(parse_sources(*plan, &step));
    std::string_view word = next_word();
    if (word == "into") {
      step.has_destination = true;
      TRY(chunk(*plan, "into", next_word(), &step.destination));
      word = next_word();
    }
    if (word == "send") {
      TRY(channel(*plan, "send", next_word(), &step.forward));
      word = next_word();
    }
    if (word != "length") return problem("length", "it is missing before {}", quoted(word));
    TRY(blocks("length", next_word(), &step.length));
    word = next_word();
    if (word == "final") {
      step.final = true;
      word = next_word();
    }
    while (word == "after") {
      TRY(parse_await(*plan, next_word(), &step));
      word = next_word();
    }
    if (!word.empty()) return problem(quoted(word), "'after' or the line's end was expected");
    work_ += int64_t{step.length.blocks} * static_cast<int64_t>(step.sources.size() + 1);
    if (work_ > kMaxWork) return problem("step", "all steps touch more than {} blocks", kMaxWork);
    std::vector<Step>& steps = plan->lanes[static_cast<size_t>(lane)].steps;
    plan->order.emplace_back(lane, static_cast<int32_t>(steps.size()));
    steps.push_back(std::move(step));
    next_line();
    return {};
  }

  Status parse_repeat(Plan* plan) {
    size_t lane = 0;
    Repeat repeat;
    TRY(number("repeat lane", next_word(), 0, static_cast<int64_t>(plan->lanes.size()) - 1, &lane));
    const auto steps = static_cast<int64_t>(plan->lanes[lane].steps.size());
    TRY(number("repeat first", next_word(), 0, steps, &repeat.first));
    TRY(number("repeat body", next_word(), 1, steps, &repeat.body));
    TRY(number("repeat times", next_word(), 1, steps, &repeat.times));
    TRY(end_of_line());
    plan->lanes[lane].repeats.push_back(repeat);
    next_line();
    return {};
  }

  std::string_view rest_, line_, key_;
  int64_t line_number_ = 0;
  Plan head_;  // what all ranks share
  std::vector<Plan> plans_;
  std::set<std::pair<int32_t, int32_t>> shared_;  // channels of several readers: number, writer
  int64_t scratch_ = 0, ends_ = 0, work_ = 0;     // of all ranks so far
};

}  // namespace

Result<std::vector<Plan>> parse_plan_text(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace unisono
